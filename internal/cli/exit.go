package cli

import (
	"errors"

	"github.com/tutti-server/tutti"
)

// The exit statuses of commands. serve, worker and tritonserver end with 1 after every error, as tritonserver does.
const (
	exitFailure     = 1 // an error without a status of its own; also findings and differences
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitUnavailable = 5
)

// exitHelp is the text about exit statuses in `tutti help`.
const exitHelp = "Exit status: 0, or 1 after an error, a finding or a difference, 2 wrong usage, 3 not found, 4 refused, 5 unavailable.\n"

// exitStatus returns the exit status of a command that failed.
func exitStatus(err error) int {
	if _, ok := errors.AsType[*tutti.OptionError](err); ok {
		return exitFailure
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}
