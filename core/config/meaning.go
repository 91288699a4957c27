package config

import (
	"fmt"
	"strings"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// meanings explain the parameters of a step: the verb follows the step's name.
var meanings = map[string]func(value string) string{
	whenParam:      func(v string) string { return "runs for the rows for which " + v },
	otherwiseParam: func(v string) string { return "has, for the rows for which it does not run, the values " + v },
	timeoutParam:   func(v string) string { return "fails when an attempt takes longer than " + v + " ms" },
	retriesParam:   func(v string) string { return "is executed again after a failure, at most " + v + " times" },
	fallbackParam:  func(v string) string { return "is replaced by the model '" + v + "' when it fails" },
	optionalParam: func(v string) string {
		if v == "absent" {
			return "has no outputs when it fails, and its request goes on"
		}
		return "has, when it fails, the values " + v + ", and no other outputs"
	},
	constantParam: func(v string) string { return "has the constant inputs " + v },
	requestParams: func(v string) string { return "sees the request parameters " + v + " over those of the request" },
	adaptParam: func(v string) string {
		if v == "true" {
			return "gets adapters where an input differs in type, layout or a leading dimension of 1"
		}
		return "gets no adapters"
	},
	demuxParam: func(v string) string { return "writes items that become rows of their own: " + v },
	countsParam: func(v string) string {
		return "counts the items of each row that are no padding by the tensor '" + v + "'"
	},
	splitParam:    func(v string) string { return "is executed by one of several models for each request: " + v },
	canaryParam:   func(v string) string { return "has a canary, whose share of the requests follows its results: " + v },
	windowParam:   func(v string) string { return "reads windows of " + v + " positions" },
	strideParam:   func(v string) string { return "reads a window that begins every " + v + " positions" },
	windowOfParam: func(v string) string { return "reads windows of the tensors " + v },
	tailParam: func(v string) string {
		switch Tail(v) {
		case TailDrop:
			return "leaves out the positions at the end that fill no window"
		case TailPad:
			return "has its last window filled with zeros or empty strings"
		default:
			return "has a shorter last window"
		}
	},
	joinParam: func(v string) string { return "runs for the streams of " + v + " together" },
	joinByParam: func(v string) string {
		if v == "latest" {
			return "runs for each response of the first stream, with the latest ones of the others"
		}
		return "runs for the responses of equal position"
	},
	aheadParam: func(v string) string { return "lets a stream be at most " + v + " responses ahead of another" },
	unevenParam: func(v string) string {
		if v == "drop" {
			return "leaves out responses without a partner"
		}
		return "fails the request when a response has no partner"
	},
	shadowParam: func(v string) string {
		return "has a shadow: a model that gets copies of requests, and whose responses are only compared: " + v
	},
}

// ensembleMeanings explain the parameters of an ensemble that are of no step.
var ensembleMeanings = map[string]func(value string) string{
	firstOfParam: func(v string) string {
		return "each row of a tensor is that of the first tensor in its list that has the row: " + v
	},
	gatherParam:   func(v string) string { return "the rows of items are collected in one tensor again: " + v },
	maxItemsParam: func(v string) string { return "a request has at most " + v + " items in all its fan-outs" },
	inFlightParam: func(v string) string { return "at most " + v + " items are executed at a time" },
	earlyParam: func(v string) string {
		if v == "true" {
			return "a client that accepts several responses gets each output as soon as it is known"
		}
		return ""
	},
	EmbeddingsParam:  func(v string) string { return "the routes of embeddings serve it" + apiWords(v) },
	RerankParam:      func(v string) string { return "the routes of rerank serve it" + apiWords(v) },
	CompletionsParam: func(v string) string { return "the route of completions serves it" + apiWords(v) },
	TokenizeParam:    func(v string) string { return "the route of tokens serves it" + apiWords(v) },
	limitParam:       func(v string) string { return "a response is due " + v + " ms after its request has arrived" },
	ensembleAdaptParam: func(v string) string {
		if v == "true" {
			return "every step and output gets adapters where a tensor differs in type, layout or a leading dimension of 1"
		}
		return ""
	},
}

// apiWords returns the value of a parameter of routes for a sentence.
func apiWords(value string) string {
	if value == "" {
		return ""
	}
	return " with " + strings.Join(strings.Fields(value), ", ")
}

// Meanings returns a sentence for each parameter of an ensemble that changes its data flow, in the order of their names. Those that are not
// valid have none.
//
// For example, "step.detailed.timeout_ms" with the value 50 gives "step 'detailed' fails when an attempt takes longer than 50 ms".
func Meanings(cfg *modelconfig.ModelConfig) (list []string) {
	if !IsEnsemble(cfg) {
		return nil
	}
	flow, faults := FlowOf(cfg)
	if _, whole := WholeFlowOf(cfg); len(faults) > 0 || len(whole) > 0 {
		return nil
	}
	b := &branches{problems: problems{cfg: cfg}, flow: flow}
	for _, key := range sortedKeys(cfg.GetParameters()) {
		name, isStep := strings.CutPrefix(key, stepPrefix)
		dot := strings.LastIndexByte(name, '.')
		text := ""
		if say := wholeMeanings[key]; say != nil {
			text = say(b.value(key))
		} else if say := ensembleMeanings[key]; say != nil {
			text = say(b.value(key))
		} else if isStep && dot > 0 {
			text = b.meaning(key, name[:dot], name[dot+1:])
		}
		if text != "" {
			list = append(list, text)
		}
	}
	return list
}

// meaning explains one parameter of a step; "" when there is nothing to say.
func (b *branches) meaning(key, name, what string) string {
	i, ok := b.find(key, name)
	if !ok {
		return ""
	}
	step := "step '" + b.label(i) + "' "
	if r := b.flow.Steps[i].Faults; what == breakerParam && r != nil && r.Breaker != nil {
		return step + fmt.Sprintf("has a circuit breaker that %s", r.Breaker)
	}
	if say := meanings[what]; say != nil {
		return step + say(b.value(key))
	}
	return ""
}
