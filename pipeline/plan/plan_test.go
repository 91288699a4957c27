package plan_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// golden compiles one ensemble of a golden file.
func golden(t *testing.T, file, name string) *plan.Plan {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/" + file + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	repo := models(t, archive)
	for i := range archive.Files {
		if f := &archive.Files[i]; f.Name == name+".pbtxt" {
			p, err := plan.Compile(parse(t, f), 7, repo)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	t.Fatalf("%s has no ensemble %s", file, name)
	return nil
}

func TestPlan(t *testing.T) {
	t.Parallel()
	p := golden(t, "prune", "three_outputs")
	sig := p.Signature
	if sig.Model != "three_outputs" || sig.Version != 7 || !p.Ensemble || p.Slots != 4 {
		t.Errorf("model %s version %d ensemble %t with %d slots", sig.Model, sig.Version, p.Ensemble, p.Slots)
	}
	type shape struct {
		Names           []string
		Inputs, Outputs []plan.Slot
		Consumers       [][]plan.InputRef
		Readers         []int32
		OutputNodes     []plan.NodeSet
		AllNodes        plan.NodeSet
		OutputFit       []plan.BatchRule
	}
	got := shape{p.Names, p.Inputs, p.Outputs, p.Consumers, p.Readers, p.OutputNodes, p.AllNodes, p.OutputRules}
	want := shape{
		Names:  []string{"IN", "O1", "O2", "O3"},
		Inputs: []plan.Slot{0}, Outputs: []plan.Slot{1, 2, 3},
		Consumers:   [][]plan.InputRef{{{0, 0}, {2, 0}}, {{1, 0}}, {{2, 1}}, nil},
		Readers:     []int32{2, 2, 2, 1},
		OutputNodes: []plan.NodeSet{{1}, {3}, {7}},
		AllNodes:    plan.NodeSet{7},
		OutputFit:   []plan.BatchRule{plan.AsIs, plan.AsIs, plan.AsIs},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	join := p.Nodes[2]
	if join.Name != "join" || join.Need != 2 || join.Version != 1 || len(join.Rules) != 2 {
		t.Errorf("last node is %+v", join)
	}
}

func TestPlanOfNested(t *testing.T) {
	t.Parallel()
	p := golden(t, "bind", "passed_on")
	opt := p.Nodes[0]
	if diff := cmp.Diff([]string{"passed_on", "pass"}, opt.Ensembles); diff != "" {
		t.Errorf("ensembles (-want +got):\n%s", diff)
	}
	if opt.Need != 1 || opt.In[1] != plan.None || opt.Out[1] != plan.None {
		t.Errorf("need %d, in %v, out %v: want the optional input and the second output unmapped", opt.Need, opt.In, opt.Out)
	}
	if got := p.Nodes[1].In[0]; got != p.Inputs[0] {
		t.Errorf("join reads slot %d, want the ensemble's input, which the nested ensemble hands on", got)
	}
	p = golden(t, "bind", "straight_through")
	if p.Outputs[1] != p.Inputs[0] || p.Readers[p.Inputs[0]] != 2 || p.OutputNodes[1].Contains(0) {
		t.Errorf("an input that is an output: slots %v, readers %v, nodes %v", p.Outputs, p.Readers, p.OutputNodes)
	}
}

// one is a Lookup that returns the same model for every name.
type one plan.Model

func (o one) Model(string, int64) (plan.Model, error) { return plan.Model(o), nil }

func TestLabelsComeFromTheStep(t *testing.T) {
	t.Parallel()
	cfg := chain(2)
	look := one{Signature: &config.Signature{
		Inputs:  []config.Port{{Name: "I", DType: tensor.FP32, Dims: tensor.Of(4)}},
		Outputs: []config.Port{{Name: "O", DType: tensor.FP32, Dims: tensor.Of(4), Labels: []string{"cat", "dog"}}},
	}}
	p, err := plan.Compile(cfg, 1, look)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"cat", "dog"}, p.Signature.Outputs[0].Labels); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p.Nodes[0].Version != -1 {
		t.Errorf("version %d, want -1: the signature names none", p.Nodes[0].Version)
	}
}

// doubling is a Lookup of ensembles that each contain the next one twice.
type doubling struct{}

func (doubling) Model(name string, _ int64) (plan.Model, error) {
	cfg := chain(2)
	cfg.Name = name
	for _, s := range cfg.GetEnsembleScheduling().Step {
		s.ModelName = name + "x"
		s.InputMap = map[string]string{"IN": s.InputMap["I"]}
		s.OutputMap = map[string]string{"OUT": s.OutputMap["O"]}
	}
	return plan.Model{Signature: config.SignatureOf(cfg), Ensemble: cfg}, nil
}

// single is a Lookup of ensembles that each contain the next one.
type single struct{}

func (single) Model(name string, _ int64) (plan.Model, error) {
	m, err := doubling{}.Model(name, -1)
	steps := m.Ensemble.GetEnsembleScheduling()
	steps.Step = steps.Step[:1]
	steps.Step[0].OutputMap["OUT"] = "OUT"
	return m, err
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		look plan.Lookup
		want string
	}{
		{single{}, "ensemble 'e' nests ensembles more than 64 deep"},
		{doubling{}, "ensemble 'e' nests ensembles more than 64 deep"},
	} {
		m, err := tt.look.Model("e", -1)
		if err != nil {
			t.Fatal(err)
		}
		_, err = plan.Compile(m.Ensemble, 1, tt.look)
		if err == nil || err.Error() != tt.want || status.CodeOf(err) != status.Unsupported {
			t.Errorf("%T: %v, want %s", tt.look, err, tt.want)
		}
	}
	_, err := plan.Compile(chain(1<<14+1), 1, fp32)
	if want := "ensemble 'e' expands to more than 16384 steps"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

var fp32 = one{Signature: &config.Signature{
	Model: "m", Version: 1,
	Inputs:  []config.Port{{Name: "I", DType: tensor.FP32, Dims: tensor.Of(4)}},
	Outputs: []config.Port{{Name: "O", DType: tensor.FP32, Dims: tensor.Of(4)}},
}}

// chain returns an ensemble e of n steps, each of which reads the previous step's output.
func chain(n int) *modelconfig.ModelConfig {
	steps := make([]*modelconfig.ModelEnsembling_Step, n)
	name := func(i int) string {
		switch i {
		case 0:
			return "IN"
		case n:
			return "OUT"
		}
		return fmt.Sprintf("t%d", i)
	}
	for i := range steps {
		steps[i] = &modelconfig.ModelEnsembling_Step{
			ModelName: fmt.Sprintf("m%d", i), ModelVersion: -1,
			InputMap: map[string]string{"I": name(i)}, OutputMap: map[string]string{"O": name(i + 1)},
		}
	}
	return &modelconfig.ModelConfig{
		Name: "e", Platform: "ensemble",
		Input:  []*modelconfig.ModelInput{{Name: "IN", DataType: modelconfig.DataType_TYPE_FP32, Dims: []int64{4}}},
		Output: []*modelconfig.ModelOutput{{Name: "OUT", DataType: modelconfig.DataType_TYPE_FP32, Dims: []int64{4}}},
		SchedulingChoice: &modelconfig.ModelConfig_EnsembleScheduling{
			EnsembleScheduling: &modelconfig.ModelEnsembling{Step: steps},
		},
	}
}

func TestSVG(t *testing.T) {
	t.Parallel()
	p := golden(t, "order", "quo_ted")
	kind := func(model string) string { return "<" + model + ">" }
	var first, second bytes.Buffer
	if err := errors.Join(p.SVG(&first, kind), p.SVG(&second, kind)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the picture differs from one time to the next")
	}
	var words strings.Builder
	for d := xml.NewDecoder(&first); ; {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if chars, ok := tok.(xml.CharData); ok {
			words.Write(chars)
		}
	}
	for _, want := range []string{`I"N\`, "<a>", "<b>", "OUT", "x", "FP32 [16]"} {
		if !strings.Contains(words.String(), want) {
			t.Errorf("the picture does not say %s", want)
		}
	}
}

func TestSVGOfTooMany(t *testing.T) {
	t.Parallel()
	p, err := plan.Compile(chain(513), 1, fp32)
	if err != nil {
		t.Fatal(err)
	}
	want := "'e' has 513 steps, expected at most 512 in an image"
	if err := p.SVG(io.Discard, nil); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{3, 1000} {
		cfg := chain(n)
		b.Run(fmt.Sprintf("steps=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := plan.Compile(cfg, 1, fp32); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
