package backends_test

import (
	"context"
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// doubler is a backend, a model and an instance: its models have no files and no state. It returns its input times two.
type doubler struct{ sig *config.Signature }

var _ backends.ConcurrentModel = doubler{}

func (doubler) Load(_ context.Context, s backends.Settings) (backends.Model, error) {
	if len(s.Config.GetInput()) != 1 || len(s.Config.GetOutput()) != 1 {
		return nil, status.Errorf(status.InvalidArg, "model '%s': expected one input and one output in the configuration", s.Model)
	}
	sig := config.SignatureOf(s.Config)
	sig.Model, sig.Version = s.Model, s.Version
	return doubler{sig}, nil
}

func (d doubler) Signature() *config.Signature { return d.sig }

func (doubler) Inline() bool { return true }

func (d doubler) NewInstance(context.Context, tensor.Place) (backends.Instance, error) { return d, nil }

func (doubler) Execute(_ context.Context, b *backends.Batch) error {
	out, err := b.Alloc(0, tensor.FP32, b.In[0].Shape)
	if err != nil {
		return err
	}
	to := tensor.Slice[float32](out)
	for i, v := range tensor.Slice[float32](&b.In[0]) {
		to[i] = 2 * v
	}
	return nil
}

func (doubler) Close() error { return nil }

// doublerConfig is the configuration of a model of the backend: FP32 [1] to FP32 [1], in batches of up to 8 rows.
func doublerConfig() *modelconfig.ModelConfig {
	return &modelconfig.ModelConfig{
		Name: "twice", Backend: "doubler", MaxBatchSize: 8,
		Input:  []*modelconfig.ModelInput{{Name: "IN", DataType: modelconfig.DataType_TYPE_FP32, Dims: []int64{1}}},
		Output: []*modelconfig.ModelOutput{{Name: "OUT", DataType: modelconfig.DataType_TYPE_FP32, Dims: []int64{1}}},
	}
}

// A complete backend, driven through its lifecycle as the server does: open, load, create an instance, execute a batch of two
// requests, and close.
func Example() {
	registry, err := backends.NewRegistry(backends.Factory{
		Name:   "doubler",
		Params: []string{},
		New:    func(backends.Options) (backends.Backend, error) { return doubler{}, nil },
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	backend, err := registry.ByName("doubler").New(backends.Options{})
	if err != nil {
		panic(err)
	}
	model, err := backend.Load(ctx, backends.Settings{Model: "twice", Version: 1, Config: doublerConfig()})
	if err != nil {
		panic(err)
	}
	instance, err := model.NewInstance(ctx, tensor.Place{})
	if err != nil {
		panic(err)
	}

	pool := tensor.NewPool()
	in, err := tensor.New(pool, tensor.FP32, tensor.Of(3, 1))
	if err != nil {
		panic(err)
	}
	copy(tensor.Slice[float32](&in), []float32{1, 2, 3})
	batch := &backends.Batch{
		Rows:     3,
		Requests: []backends.Request{{First: 0, Rows: 2}, {First: 2, Rows: 1}},
		In:       []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: pool,
	}
	if err := instance.Execute(ctx, batch); err != nil {
		panic(err)
	}
	out := tensor.Slice[float32](&batch.Out[0])
	for i := range batch.Requests {
		r := &batch.Requests[i]
		fmt.Printf("request %d: %v\n", i, out[r.First:r.First+r.Rows])
	}

	tensor.ReleaseAll(batch.In)
	tensor.ReleaseAll(batch.Out)
	for _, closer := range []func() error{instance.Close, model.Close, backend.Close} {
		if err := closer(); err != nil {
			panic(err)
		}
	}
	// Output:
	// request 0: [2 4]
	// request 1: [6]
}

// An instance that cannot serve one row fails the request that contains it. The other requests of the batch continue.
func ExampleBatch_Fail() {
	batch := &backends.Batch{Rows: 3, Requests: []backends.Request{{First: 0, Rows: 2}, {First: 2, Rows: 1}}}
	batch.Fail(2, status.Errorf(status.InvalidArg, "row 2 is not a JPEG image"))
	for i := range batch.Requests {
		fmt.Printf("request %d: %v\n", i, batch.Requests[i].Err)
	}
	// Output:
	// request 0: <nil>
	// request 1: row 2 is not a JPEG image
}

// default_model_filename of the configuration replaces the backend's own name of the model file.
func ExampleSettings_File() {
	s := backends.Settings{Dir: "models/resnet/1", Config: &modelconfig.ModelConfig{}}
	fmt.Println(s.File("model.onnx"))
	s.Config.DefaultModelFilename = "resnet50.onnx"
	fmt.Println(s.File("model.onnx"))
	// Output:
	// models/resnet/1/model.onnx
	// models/resnet/1/resnet50.onnx
}
