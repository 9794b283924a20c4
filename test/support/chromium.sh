#!/bin/sh
# Debian's Chromium. It ends with the process that started it, whatever ends that; its profile is then removed, too.
chromium-headless-shell "$@"
for argument; do
  case $argument in --user-data-dir=*) rm -rf "${argument#*=}" ;; esac
done
