"""``python -m cls_analysis``."""

from cls_analysis.cli.app import main

if __name__ == "__main__":
    main()
