package condition

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
)

// costLimit returns the options that stop an evaluation which costs more than maxCost: none when no input can make it cost so much. It
// refuses an expression that always does.
func costLimit(env *cel.Env, checked *cel.Ast, vars []Variable) ([]cel.ProgramOption, error) {
	estimate, err := env.EstimateCost(checked, sizes(vars))
	if err != nil {
		return nil, fmt.Errorf("cannot be estimated: %w", err)
	}
	if estimate.Min > maxCost {
		return nil, fmt.Errorf("costs at least %d operations a row, expected at most %d: compute the value in a step", estimate.Min, maxCost)
	}
	if estimate.Max <= maxCost {
		return nil, nil
	}
	return []cel.ProgramOption{cel.CostLimit(maxCost)}, nil
}

// sizes are the variables as an estimator of costs.
type sizes []Variable

// EstimateCallCost implements cost.Estimator: functions cost what CEL says.
func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// EstimateSize implements cost.Estimator: the elements of a row where its dims are fixed.
func (s sizes) EstimateSize(element cost.AstNode) *cost.SizeEstimate {
	path := element.Path()
	if len(path) != 1 {
		return nil
	}
	at := slices.IndexFunc(s, func(v Variable) bool { return v.Name == path[0] })
	if at < 0 {
		return nil
	}
	if n := s[at].Dims.Elements(); n >= 0 {
		return &cost.SizeEstimate{Min: uint64(n), Max: uint64(n)}
	}
	return nil
}
