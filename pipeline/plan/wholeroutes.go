package plan

import (
	"fmt"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// An ensemble whose requests are routed as a whole is two levels: the outer one has one step, which is the ensemble itself without its
// routes, and the steps of the alternatives. Both have one name, and names inside of them have the same prefix, so that a route
// neither renames the steps of its ensemble nor is named in errors.

// readFlow sets the data flow of l: the one around the ensemble if it routes whole requests.
func (l *level) readFlow() {
	if whole, _ := config.WholeFlowOf(l.cfg); whole != nil {
		l.flow, l.whole = whole, true
		return
	}
	l.flow, _ = config.FlowOf(l.cfg)
}

// isItself reports whether a step of l is the ensemble itself.
func (l *level) isItself(s *modelconfig.ModelEnsembling_Step) bool {
	return l.whole && s.GetModelName() == l.cfg.GetName()
}

// without says that a step does not give an input, for errors.
func (l *level) without(own *step) string {
	if l.whole {
		return fmt.Sprintf("'%s' does not have", own.model)
	}
	return fmt.Sprintf("the step of '%s' does not give", own.model)
}
