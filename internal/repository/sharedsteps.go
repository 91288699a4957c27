package repository

import (
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// shareSteps makes the ensembles that were opened together share the steps that they have in common: thousands of ensembles are made of few
// templates, and their steps are most of what an ensemble takes in memory. A configuration does not change once it is checked: code
// that needs a different one must copy it.
func shareSteps(opened []*folder) {
	known := map[string]*modelconfig.ModelEnsembling_Step{}
	for _, f := range opened {
		steps := f.cfg.GetEnsembleScheduling().GetStep()
		for i, s := range steps {
			text, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
			if err != nil {
				continue // a name that is no UTF-8: the step stays as it is
			}
			if same := known[string(text)]; same != nil {
				steps[i] = same
			} else {
				known[string(text)] = s
			}
		}
	}
}
