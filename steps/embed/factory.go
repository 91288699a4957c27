// Package embed holds the step "nearest": exact search for the stored vectors that are closest to an embedding. For example, with rows
// [1 0], [0 2] and [3 3] and the cosine, the two nearest rows to [2 1] are row 2 (0.95) and row 0 (0.89).
package embed

import (
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

const (
	outScores = iota
	outIndices
	outIDs
)

const (
	inputName = "embedding"
	idsKey    = "ids_file"
	cosine    = "cosine"
)

// NewFactory returns the step "nearest".
//
// Input embedding is FP32 [D]. Outputs are scores FP32 [k], descending; indices INT64 [k], rows of the matrix; and with ids_file ids
// BYTES [k]. Every row is compared; rows of equal score stay in order. Products are summed in FP32, in an order that depends on the
// processor, so that scores may differ in their last bits between machines. The cosine with a vector of zeros is 0. Rows whose product
// is beyond FP32 may be missing; the rest of the outputs then has index -1 and an empty id. A matrix with a number that is not finite
// fails to load, an embedding with one fails its request.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "nearest",
		Doc: "Finds the k stored vectors that are closest to an embedding, by comparing it with all of them. The vectors are the " +
			"rows of a matrix in a file of NumPy's format. An embedding with a number that is not finite fails its request.",
		Params: []steps.Param{
			{Key: "matrix_file", Doc: "NPY file of FP32 or FP64 numbers, one vector per row, in the version folder or the model folder.", Required: true, Sample: "vectors.npy"},
			{Key: "k", Doc: "Number of vectors to return.", Default: "5"},
			{Key: "metric", Doc: "The score: the cosine of the angle, or the inner product (dot).", Default: cosine, Values: []string{cosine, "dot"}},
			{Key: idsKey, Doc: "Text file with one line per vector; adds the output ids.", Sample: "ids.txt"},
		},
		Examples:  examples(),
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	n, err := s.Int("k", 1)
	if err != nil {
		return nil, err
	}
	k := tensor.Of(int64(n))
	sig := &config.Signature{
		Inputs: []config.Port{{Name: inputName, DType: tensor.FP32, Dims: tensor.Of(-1)}},
		Outputs: []config.Port{
			outScores:  {Name: "scores", DType: tensor.FP32, Dims: k},
			outIndices: {Name: "indices", DType: tensor.Int64, Dims: k},
		},
	}
	if s.Params[idsKey] != "" {
		sig.Outputs = append(sig.Outputs, config.Port{Name: "ids", DType: tensor.Bytes, Dims: k})
	}
	return sig, nil
}

func examples() []steps.Example {
	return []steps.Example{{
		Config: `max_batch_size: 8
parameters { key: "step" value { string_value: "nearest" } }
parameters { key: "matrix_file" value { string_value: "vectors.npy" } }
parameters { key: "k" value { string_value: "2" } }
parameters { key: "ids_file" value { string_value: "ids.txt" } }`,
		Files: map[string][]byte{
			"vectors.npy": encode([][]float32{{1, 0}, {0, 2}, {3, 3}}),
			"ids.txt":     []byte("east\nnorth\nnorth-east\n"),
		},
		Request: `{"inputs": [{"name": "embedding", "datatype": "FP32", "shape": [1, 2], "data": [2, 1]}]}`,
	}}
}
