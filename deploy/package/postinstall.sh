#!/bin/sh
# Makes systemd read the unit. A server that runs is restarted by an update; none is started by an installation.
set -e
if [ "$1" = configure ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if [ -n "$2" ]; then systemctl try-restart tutti.service; fi
fi
