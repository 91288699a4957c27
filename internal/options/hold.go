package options

import (
	"fmt"
	"strconv"
	"strings"
)

// backlogDelay reads how many requests without a slot the test hook has models of sequences wait for.
func (o *Options) backlogDelay(environ []string) error {
	const name = "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"
	for _, e := range environ {
		text, ok := strings.CutPrefix(e, name+"=")
		if !ok || text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return fmt.Errorf("environment variable %s is '%s', expected a number of requests", name, text)
		}
		o.BacklogDelayScheduler = n
	}
	return nil
}
