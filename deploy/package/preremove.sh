#!/bin/sh
# Ends the server before its program is removed. Models and jobs in /var/lib/tutti stay.
set -e
if [ "$1" = remove ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	systemctl --no-reload disable --now tutti.service
fi
