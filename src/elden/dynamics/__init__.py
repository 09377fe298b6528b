"""The dynamics models: attention networks, their ensembles, loss, mixup and prioritised replay."""
