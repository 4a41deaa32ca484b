from hypercaps.cli import main

main()
