#!/usr/bin/env bash
# docs/walkthrough.md is what docs/walkthrough.sh writes with this build.
set -euo pipefail
bash "$WS_SOURCE/docs/walkthrough.sh" | diff "$WS_SOURCE/docs/walkthrough.md" - ||
  { echo "docs/walkthrough.md is out of date: docs/walkthrough.sh > docs/walkthrough.md"; exit 1; }
