package fil

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/backends/fil/forest"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

// result is what a row of the output has.
type result uint8

const (
	// probabilities are the predictions of the forest as they are.
	probabilities result = iota
	// bothClasses are the probabilities of both classes of a binary classifier.
	bothClasses
	// classes is the number of the class.
	classes
)

// params are the parameters of a model.
type params struct {
	format       string
	allowUnknown bool
	proba        bool
	// decided says that classifier is set by the configuration.
	classifier, decided bool
	threshold           float64
	threads             int
	explain             bool // Shapley values are an output
	result              result
}

// words are the values of boolean parameters.
var words = bind.Words{True: []string{"true", "1"}, False: []string{"false", "0"}, Expected: "true or false"}

// The parameters. output_class is the name of is_classifier before fil_backend 25.09.
const (
	keyType       = "model_type"
	keyClassifier = "is_classifier"
	keyClass      = "output_class"
	keyProba      = "predict_proba"
	keyThreshold  = "threshold"
	keyUnknown    = "xgboost_allow_unknown_field"
	keyThreads    = "cpu_nthread"
)

// idle are the parameters without a meaning on a CPU, or which fil_backend itself has dropped: their values are checked, and change
// nothing.
var idle = map[string]func(key, value string) error{
	"algo":                           oneOf("ALGO_AUTO", "NAIVE", "TREE_REORG", "BATCH_TREE_REORG"),
	"storage_type":                   oneOf("AUTO", "DENSE", "SPARSE", "SPARSE8"),
	"layout":                         oneOf("depth_first", "breadth_first", "layered", "layered_children_together"),
	"blocks_per_sm":                  between(0, math.MaxInt32),
	"threads_per_tree":               powerOfTwo,
	"chunk_size":                     powerOfTwo,
	"transfer_threshold":             between(0, math.MaxInt32),
	"use_experimental_optimizations": flag,
	"cuml_cpu":                       flag,
}

// paramKeys are the parameters that the backend reads, and paramGuide their documentation.
var paramKeys = slices.Sorted(maps.Keys((&params{}).targets()))

var paramGuide = []backends.Param{
	{Key: keyType, Doc: "The format: `" + strings.Join(slices.Sorted(maps.Keys(formats)), "`, `") + "`. `" + defaultFormat + "`, XGBoost's binary format, is the default"},
	{Key: keyClassifier + ", " + keyClass, Doc: "`true`: the output is the number of the class, or with `predict_proba` probabilities. By default true for models that were trained as classifiers"},
	{Key: keyProba, Doc: "`true`: the output has a probability for each class. For a binary classifier that of class 1, or with `dims: [ 2 ]` both"},
	{Key: keyThreshold, Doc: "The probability above which a binary classifier chooses class 1, 0.5 by default"},
	{Key: keyUnknown, Doc: "`true`: fields of XGBoost's JSON and UBJSON that are not known are ignored; by default they are an error"},
	{Key: keyThreads, Doc: "The most threads of an execution. By default a batch of many rows uses all processors"},
	{Key: strings.Join(slices.Sorted(maps.Keys(idle)), ", "), Doc: "For fil_backend on GPUs. They are checked and have no effect on a CPU"},
}

// targets are what the parameters set.
func (p *params) targets() bind.Targets {
	isClassifier := func(key, value string) (err error) {
		p.classifier, err = words.Parse(key, value)
		p.decided = true
		return err
	}
	t := bind.Targets{
		keyClassifier: isClassifier, keyClass: isClassifier, keyProba: &p.proba, keyUnknown: &p.allowUnknown,
		keyType: func(key, value string) error {
			p.format = value
			names := slices.Sorted(maps.Keys(formats))
			if slices.Contains(names, value) {
				return nil
			}
			near := config.DidYouMean(value, names)
			if near != "" {
				near = "." + near
			}
			return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected one of %s%s", value, key, strings.Join(names, ", "), near)
		},
		keyThreshold: func(key, value string) (err error) {
			if p.threshold, err = strconv.ParseFloat(value, 32); err != nil || math.IsNaN(p.threshold) {
				return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected a number", value, key)
			}
			return nil
		},
		keyThreads: func(key, value string) (err error) {
			if p.threads, err = bind.ParseInt(key, value, -1, bind.MaxThreads, "a number of threads, or -1 for all,"); p.threads < 0 {
				p.threads = 0
			}
			return err
		},
	}
	for key, check := range idle {
		t[key] = check
	}
	return t
}

// parse reads the parameters of a model.
func parse(s *backends.Settings) (params, error) {
	p := params{format: defaultFormat, threshold: 0.5}
	err := words.Set(s.Config, p.targets())
	return p, err
}

// complete sets what depends on the forest.
func (p *params) complete(f *forest.Forest) error {
	several := f.Task == forest.MultiClass || f.Task == forest.Binary
	if !p.decided {
		p.classifier = several
	}
	switch {
	case !p.classifier:
		p.result = probabilities // or values: predict_proba means nothing, as in fil_backend
	case f.Outputs > 1 && !several:
		return status.Errorf(status.InvalidArg, "the parameter '%s' is true, but the model is one of %s with %d targets", keyClassifier, f.Task, f.Outputs)
	case p.proba:
		p.result = probabilities
	default:
		p.result = classes
	}
	return nil
}

// oneOf returns a check for one of some words.
func oneOf(allowed ...string) func(key, value string) error {
	return func(key, value string) error {
		if slices.Contains(allowed, value) {
			return nil
		}
		return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected one of %s", value, key, strings.Join(allowed, ", "))
	}
}

// between returns a check for an integer.
func between(least, most int) func(key, value string) error {
	return func(key, value string) error {
		_, err := bind.ParseInt(key, value, least, most, "an integer")
		return err
	}
}

// powerOfTwo checks for a power of two up to 32.
func powerOfTwo(key, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > 32 || n&(n-1) != 0 {
		return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected a power of 2 from 1 to 32", value, key)
	}
	return nil
}

// flag checks for a boolean.
func flag(key, value string) error {
	_, err := words.Parse(key, value)
	return err
}
