package forest

// Test is how a node chooses a child.
type Test uint8

// The tests, of a value x against the threshold t or the categories of a node. A test that holds goes left.
const (
	// Leaf is no test.
	Leaf Test = iota
	Less
	LessEqual
	Greater
	GreaterEqual
	Equal
	// In holds when x, without its fraction, is one of the categories. It does not hold for negative x.
	In
	// InTruncated is In for a framework that converts x to an integer before it looks at the sign: -0.5 is category 0.
	InTruncated
)

// Node is a node as a reader found it.
type Node struct {
	Test Test
	// Left and Right are indices of nodes of the tree.
	Left, Right int32
	// Feature is the column of a row that is tested.
	Feature   int32
	Threshold float64
	// DefaultLeft is the direction of NaN.
	DefaultLeft bool
	// ZeroMissing sends x with |x| <= 1e-35 in the default direction, for a test LessEqual. NaN counts as 0. LightGBM has it.
	ZeroMissing bool
	// Categories are those of In and InTruncated.
	Categories []uint32
	// Cover is the weight of the rows of training that reached the node, 0 where it is not known. It is for Shapley values only.
	Cover float64
	// Value is the value of a leaf.
	Value float64
	// Vector is, in a tree with a value for each output, the values of a leaf.
	Vector []float64
}
