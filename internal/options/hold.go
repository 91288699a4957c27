package options

import (
	"fmt"
	"strconv"
	"strings"
)

// backlogDelay reads the test hook TRITONSERVER_BACKLOG_DELAY_SCHEDULER, a number of requests.
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
