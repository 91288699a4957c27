// Package forest executes ensembles of decision trees on the CPU. Readers of model files build a Forest, tree by tree; the backend
// fil predicts with it.
//
//	tree.go     what a reader passes: nodes, tests, leaves
//	builder.go  checks a tree and lays it out
//	special.go  tests that are not one comparison
//	forest.go   the forest and its memory layout
//	descend.go  from the root to the leaf: several rows, or several trees, at a time
//	predict.go  sums of leaves, averages, base scores
//	link.go     from sums to predictions
//	shap.go     Shapley values
//
// Inputs are FP32. A threshold of another precision becomes the FP32 number that decides every FP32 input in the same way, so that a
// row reaches the same leaf as in its framework. Leaves are added in the order of the trees and in the precision of the framework.
package forest

import (
	"math"
	"sync"
)

// Task is the kind of problem that a forest was trained for.
type Task uint8

// The tasks.
const (
	Regression Task = iota
	Binary
	MultiClass
	Ranking
	Isolation
)

var taskNames = [...]string{"regression", "binary classification", "multi-class classification", "ranking", "anomaly detection"}

// String returns the name of the task, for messages.
func (t Task) String() string { return taskNames[t] }

// Head is what is known of a forest besides its trees.
type Head struct {
	// Features is the number of columns of a row.
	Features int
	// Outputs is the number of predictions for a row: the number of classes or of targets, or 1.
	Outputs int
	Task    Task
	// Double adds leaves in FP64, as LightGBM and scikit-learn do. Otherwise they are added in FP32, as in XGBoost.
	Double bool
	// BaseFirst starts the sums with the base scores, as XGBoost does. Otherwise they are added after the average.
	BaseFirst bool
	// Base has the base score of each output, as a margin. Nil means zeros.
	Base []float64
	// Average divides each sum by the number of its trees.
	Average bool
	Link    Link
	// Explain keeps what Shapley values need.
	Explain bool
}

// Forest is an ensemble of trees. It is immutable and safe for concurrent use.
type Forest struct {
	Head

	trees   []tree
	columns []column
	nodes   []node
	special []special
	sets    []uint32 // the bitsets and lists of specials
	single  []float32
	double  []float64
	counts  []float64 // for each output, the number of its trees
	visits  int       // the sum of the depths of trees
	scratch sync.Pool

	explainer *explainer // nil without Head.Explain
}

// tree is the root of a tree with what is needed to execute it.
type tree struct {
	root uint32
	// depth is the number of tests on the longest path.
	depth int32
	// output is the output that a leaf's value is added to, or -1 when leaves have a value for each output.
	output int32
	// plain is true when every test compares a value with a threshold.
	plain bool
}

// node is a test or a leaf. A test with value <= threshold continues at next, any other, which includes NaN, at next+1. So each kind
// of comparison with each default direction for missing values needs neither a branch nor a case of its own: a test that sends missing
// values to the left compares the negated value, for which the children change places.
//
// A leaf compares the constant 0 with 0 and continues at itself, so that traversals of different lengths run side by side.
type node struct {
	// threshold is a key, as the values of prepared rows are.
	threshold int32
	// slot is the position of the value in a prepared row, or the number of slots plus the index of a special.
	slot uint32
	next uint32
	// leaf is the index of the leaf's first value.
	leaf uint32
}

// missing is the key of NaN. It is above all others.
const missing = math.MaxInt32

// keyOf returns an integer for an FP32 number that compares as the number does: integers are compared without a branch. Both zeros have
// the key 0, the key of -x is that of x negated, and the number after x has the next key.
func keyOf(x float32) int32 {
	bits := int32(math.Float32bits(x))
	switch {
	case x != x:
		return missing
	case bits < 0:
		return -(bits & math.MaxInt32)
	}
	return bits
}

// valueOf returns the number of a key.
func valueOf(key int32) float32 {
	switch {
	case key == missing:
		return float32(math.NaN())
	case key < 0:
		return -math.Float32frombits(uint32(-key))
	}
	return math.Float32frombits(uint32(key))
}

// column is a slot of a prepared row: a column of the input, or its negation.
type column struct {
	from    int32
	negated bool
}

// slots returns the length of a prepared row: the columns and the constant 0 of leaves.
func (f *Forest) slots() int { return len(f.columns) + 1 }

// Visits returns the number of tests on the longest paths of all trees. It bounds the work for a row.
func (f *Forest) Visits() int { return f.visits }
