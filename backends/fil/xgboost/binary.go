package xgboost

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/core/status"
)

// binaryReader reads little-endian values. After an error all are 0.
type binaryReader struct {
	rest []byte
	size int
	err  error
}

// bytes consumes n bytes.
func (r *binaryReader) bytes(n uint64, what string) []byte {
	if r.err == nil && n > uint64(len(r.rest)) {
		r.err = invalidf("byte %d: the file ends, expected %d bytes of %s", r.size-len(r.rest), n, what)
	}
	if r.err != nil {
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *binaryReader) int32(what string) int32 {
	b := r.bytes(4, what)
	if b == nil {
		return 0
	}
	return int32(binary.LittleEndian.Uint32(b))
}

func (r *binaryReader) float(what string) float32 {
	return math.Float32frombits(uint32(r.int32(what)))
}

// count consumes a number of elements of a size, which must follow.
func (r *binaryReader) count(size uint64, what string) uint64 {
	b := r.bytes(8, what)
	if b == nil {
		return 0
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(r.rest))/size {
		r.err = invalidf("byte %d: the file has %d %s, but only %d bytes more", r.size-len(r.rest), n, what, len(r.rest))
		return 0
	}
	return n
}

// Sizes of the structures of the format.
const (
	treeParamRest = 31 * 4
	nodeSize      = 5 * 4
	statSize      = 4 * 4
)

// binary reads a model of the binary format: the structures LearnerModelParam, GBTreeModelParam, and for each tree TreeParam, its nodes
// and their statistics, as they were in memory.
func (m *model) binary(data []byte) error {
	if bytes.HasPrefix(data, []byte("{")) {
		return invalidf("the file begins with '{', expected XGBoost's binary format: this is JSON or UBJSON, for which the parameter 'model_type' is xgboost_json or xgboost_ubj")
	}
	if bytes.HasPrefix(data, []byte("bs64")) {
		return status.Errorf(status.Unsupported, "the file is in base64, expected XGBoost's binary format: save the model again")
	}
	r := &binaryReader{rest: bytes.TrimPrefix(data, []byte("binf")), size: len(data)}
	m.baseScores = []float64{float64(r.float("the learner"))}
	m.features = int64(uint32(r.int32("the learner")))
	m.classes = int64(r.int32("the learner"))
	r.bytes(8, "the learner")
	m.version = []int32{r.int32("the learner"), r.int32("the learner")}
	m.targets = int64(uint32(r.int32("the learner")))
	m.margins = m.version[0] < 1
	r.bytes(26*4, "the learner")
	m.objective = string(r.bytes(r.count(1, "bytes of the objective"), "the objective"))
	m.booster = string(r.bytes(r.count(1, "bytes of the booster"), "the booster"))
	if r.err == nil && m.booster != "gbtree" && m.booster != "dart" {
		return nil // refused by its name
	}
	trees := r.int32("the booster")
	roots := r.int32("the booster")
	r.bytes(4+4+8+4+4+32*4, "the booster")
	if r.err == nil && (trees < 0 || m.version[0] < 1 && roots > 1) {
		return invalidf("the model has %d trees with %d roots, expected trees with one root", trees, roots)
	}
	for i := int32(0); i < trees && r.err == nil; i++ {
		m.trees = append(m.trees, r.tree(m.version[0]))
		if r.err != nil {
			return status.Prefixf(r.err, "tree %d: ", i)
		}
	}
	for i := int32(0); i < trees && r.err == nil; i++ {
		m.info = append(m.info, r.int32("tree_info"))
	}
	if m.booster == "dart" && trees > 0 {
		for range r.count(4, "weights of trees") {
			m.weights = append(m.weights, r.float("the weights of trees"))
		}
	}
	return r.err // attributes and the names of metrics follow
}

// tree reads a tree.
func (r *binaryReader) tree(major int32) (t regTree) {
	r.bytes(4, "a tree")
	nodes := r.int32("a tree")
	r.bytes(4+4+4, "a tree")
	t.vector = int64(r.int32("a tree"))
	r.bytes(treeParamRest, "a tree")
	if r.err != nil {
		return t
	}
	if nodes < 1 || int64(nodes) > int64(len(r.rest))/(nodeSize+statSize) {
		r.err = invalidf("it has %d nodes, expected at least 1 and at most what %d bytes hold", nodes, len(r.rest))
		return t
	}
	for range nodes {
		r.int32("a node") // its parent
		t.left = append(t.left, r.int32("a node"))
		t.right = append(t.right, r.int32("a node"))
		index := uint32(r.int32("a node"))
		t.feature = append(t.feature, int32(index&^(1<<31)))
		t.defaultLeft = append(t.defaultLeft, int32(index>>31))
		t.threshold = append(t.threshold, r.float("a node"))
	}
	for range nodes {
		r.float("statistics") // the change of the loss
		t.cover = append(t.cover, r.float("statistics"))
		r.bytes(8, "statistics")
	}
	switch {
	case major >= 2 && t.vector > 1:
		r.err = status.Errorf(status.Unsupported, "it has leaves of %d values, which the binary format does not hold: save the model as JSON", t.vector)
	case major < 2 && t.vector > 0:
		r.bytes(r.count(4, "values of leaves")*4, "values of leaves")
	}
	t.vector = 0
	return t
}
