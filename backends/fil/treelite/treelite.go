// Package treelite reads checkpoints of treelite, the form in which forests of scikit-learn and cuML are served.
//
//	treelite.go   the head of a checkpoint, and its forest
//	tree.go       trees of version 4 and of version 3.9
//	reader.go     values of the format
//
// Both versions of the format are described in treelite's documentation (Serialization Format v4 and v3); other versions are refused.
// Leaves are added in the precision of the checkpoint: FP64 for scikit-learn, FP32 for cuML.
package treelite

import (
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends/fil/forest"
	"github.com/tutti-server/tutti/core/status"
)

// Numbers of types.
const (
	typeFloat32 = 2
	typeFloat64 = 3
)

// tasks are the tasks by number.
var tasks = []forest.Task{forest.Binary, forest.Regression, forest.MultiClass, forest.Ranking, forest.Isolation}

// functions are the postprocessors by name.
var functions = map[string]forest.Function{
	"identity": forest.Identity, "identity_multiclass": forest.Identity, "signed_square": forest.SignedSquare, "hinge": forest.Hinge,
	"sigmoid": forest.Sigmoid, "multiclass_ova": forest.Sigmoid, "exponential": forest.Exponential,
	"exponential_standard_ratio": forest.StandardRatio, "logarithm_one_plus_exp": forest.LogOnePlusExp, "softmax": forest.Softmax,
}

// Read returns the forest in a checkpoint. With explain it keeps what Shapley values need.
func Read(data []byte, explain bool) (*forest.Forest, error) {
	r := &reader{rest: data, size: len(data)}
	major, minor, patch := r.int32(), r.int32(), r.int32()
	if r.err != nil {
		return nil, r.err
	}
	if major != 4 && (major != 3 || minor != 9) {
		return nil, status.Errorf(status.Unsupported, "the file is of treelite %d.%d.%d, expected a checkpoint of version 4 or 3.9", major, minor, patch)
	}
	c := &checkpoint{reader: r, head: forest.Head{Explain: explain}}
	thresholds, leaves := r.uint8(), r.uint8()
	if r.err == nil && (thresholds != leaves || leaves != typeFloat32 && leaves != typeFloat64) {
		return nil, status.Errorf(status.Unsupported, "the checkpoint has types %d and %d of thresholds and leaves, expected FP32 (2) or FP64 (3) for both", thresholds, leaves)
	}
	c.head.Double = leaves == typeFloat64
	readTree := c.tree
	if major == 4 {
		c.headV4()
	} else {
		c.headV3()
		readTree = c.treeV3
	}
	if r.err != nil {
		return nil, r.err
	}
	return c.forest(readTree)
}

// checkpoint is a checkpoint while it is read.
type checkpoint struct {
	*reader
	head    forest.Head
	trees   uint64
	outputs []int32 // for each tree, its output, or -1 for all
}

// forest reads the trees and builds the forest.
func (c *checkpoint) forest(readTree func() []forest.Node) (*forest.Forest, error) {
	b, err := forest.NewBuilder(c.head)
	if err != nil {
		return nil, err
	}
	for _, output := range c.outputs {
		nodes := readTree()
		if c.err != nil {
			return nil, c.err
		}
		if output >= 0 {
			for i := range nodes {
				if v := nodes[i].Vector; len(v) == 1 {
					nodes[i].Value = v[0]
				}
			}
		}
		if err := b.Add(nodes, int(output)); err != nil {
			return nil, err
		}
	}
	if len(c.rest) > 0 {
		return nil, invalidf("the checkpoint has %d bytes after its %d trees", len(c.rest), c.trees)
	}
	return b.Forest()
}

// headV4 reads the head of version 4.
func (c *checkpoint) headV4() {
	c.trees = c.uint64()
	c.head.Features = int(c.int32())
	c.task(c.uint8())
	c.head.Average = c.uint8() != 0
	targets, classes := c.int32(), c.int32s()
	c.int32s() // leaf_vector_shape follows from the leaves
	targetIDs, classIDs := c.int32s(), c.int32s()
	name := c.text()
	alpha, ratio := c.float32(), c.float32()
	base := c.float64s()
	c.text() // attributes
	c.options()
	if c.err != nil {
		return
	}
	switch {
	case targets < 1 || int(targets) != len(classes):
		c.fail("the model has %d targets and classes of %d", targets, len(classes))
	case uint64(len(targetIDs)) != c.trees || uint64(len(classIDs)) != c.trees:
		c.fail("the model has %d trees, but targets of %d and classes of %d", c.trees, len(targetIDs), len(classIDs))
	case targets == 1:
		c.head.Outputs, c.outputs = int(classes[0]), classIDs
	case slices.Max(classes) == 1:
		c.head.Outputs, c.outputs = int(targets), targetIDs
	default:
		c.err = status.Errorf(status.Unsupported, "the model has %d targets with up to %d classes each, expected one target or no classes", targets, slices.Max(classes))
	}
	c.head.Base = base
	c.link(name, alpha, ratio)
}

// Sizes of structures of version 3, with their padding.
const (
	nameSizeV3 = 256
	nodeSizeV3 = 48 // 8 more in FP64
)

// headV3 reads the head of version 3.9.
func (c *checkpoint) headV3() {
	c.trees = c.uint64()
	c.head.Features = int(c.int32())
	task := c.uint8()
	c.head.Average = c.uint8() != 0
	integers, perClass := c.uint8(), c.uint8() != 0
	c.bytes(2)
	classes, vector := c.uint32(), c.uint32()
	name, _, _ := strings.Cut(string(c.bytes(nameSizeV3)), "\x00")
	alpha, ratio, bias := c.float32(), c.float32(), c.float32()
	c.options()
	if c.err != nil {
		return
	}
	switch {
	case c.trees > uint64(len(c.rest)):
		c.fail("the model has %d trees, but the file has only %d bytes more", c.trees, len(c.rest))
		return
	case integers != 0 || task == 3:
		c.err = status.Errorf(status.Unsupported, "the model has integer outputs, expected floating-point outputs")
		return
	case classes < 1 || classes > forest.MaxOutputs:
		c.fail("the model has %d classes, expected 1 to %d", classes, forest.MaxOutputs)
		return
	}
	c.head.Outputs = int(classes)
	c.outputs = make([]int32, c.trees)
	switch task {
	case 0:
		if name == "sigmoid" {
			c.head.Task = forest.Binary
		}
	case 1:
		c.head.Task = forest.MultiClass
		for i := range c.outputs {
			c.outputs[i] = int32(i % int(classes))
		}
	case 2:
		c.head.Task = forest.MultiClass
		for i := range c.outputs {
			c.outputs[i] = -1
		}
	default:
		c.fail("the model has task %d, expected 0 to 2", task)
	}
	if want := map[bool]uint32{true: classes, false: 1}[task == 2]; vector != want || perClass != (task == 1) {
		c.fail("the model has task %d with leaves of %d values, expected %d", task, vector, want)
	}
	c.head.Base = slices.Repeat([]float64{float64(bias)}, int(classes))
	if name == "max_index" { // the class, which the backend chooses
		name = "softmax"
	}
	c.link(name, alpha, ratio)
}

func (c *checkpoint) task(n uint8) {
	if int(n) >= len(tasks) {
		c.fail("the model has task %d, expected 0 to %d", n, len(tasks)-1)
		return
	}
	c.head.Task = tasks[n]
}

// link sets the link from the name of a postprocessor and its parameters.
func (c *checkpoint) link(name string, alpha, ratio float32) {
	function, ok := functions[name]
	if !ok && c.err == nil {
		c.err = status.Errorf(status.Unsupported, "the model has postprocessor '%.40s', which is unknown", name)
	}
	c.head.Link = forest.Link{Function: function, A: float64(alpha)}
	if function == forest.StandardRatio {
		c.head.Link.A = float64(ratio)
	}
}
