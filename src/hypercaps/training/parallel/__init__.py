"""One training shared by several processes of this machine, on processors or one GPU each, through lightning-fabric."""
