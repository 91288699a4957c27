package precision_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// configOf returns a configuration with parameters: "precision" and "fidelity".
func configOf(tb testing.TB, params ...string) *modelconfig.ModelConfig {
	tb.Helper()
	cfg := &modelconfig.ModelConfig{Name: "m", Backend: "onnxruntime"}
	var text strings.Builder
	for i := 0; i < len(params); i += 2 {
		fmt.Fprintf(&text, "parameters { key: %q value { string_value: %q } }\n", params[i], params[i+1])
	}
	read := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text.String()), read); err != nil {
		tb.Fatal(err)
	}
	cfg.Parameters = read.GetParameters()
	return cfg
}

// TestDeclared checks the values of the parameter "precision".
func TestDeclared(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value   string
		version int64
		want    precision.Precision
		err     string
	}{
		{"int8", 1, precision.INT8, ""},
		{"fp32, 2=int8", 1, precision.FP32, ""},
		{"fp32, 2=int8", 2, precision.INT8, ""},
		{" 2 = bf16 ,fp16", 2, precision.BF16, ""},
		{"2=int8", 1, precision.None, ""},
		{"", 1, "", "unexpected value '' of parameter 'precision': '' is no precision: expected fp32, bf16, fp16 or int8, or a list such as 'fp32, 2=int8', where 2 is a version"},
		{"int4", 1, "", "'int4' is no precision"},
		{"INT8", 1, "", "'INT8' is no precision"},
		{"0=int8", 1, "", "'0' is no version"},
		{"x=int8", 1, "", "'x' is no version"},
		{"2=int8, 2=fp32", 1, "", "'2=fp32' is the second one for the same versions"},
		{"int8,", 1, "", "'' is no precision"},
	} {
		got, err := precision.Declared(configOf(t, "precision", tt.value), tt.version)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q, version %d: %q, %v; want %q, %q", tt.value, tt.version, got, err, tt.want, tt.err)
		}
	}
	if got, err := precision.Declared(configOf(t), 1); got != precision.None || err != nil {
		t.Errorf("without the parameter: %q, %v", got, err)
	}
}

// TestWith checks the value that declares one more version.
func TestWith(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value, want string
		version     int64
		p, fallback precision.Precision
	}{
		{"", "fp32, 2=int8", 2, precision.INT8, precision.FP32},
		{"", "2=int8", 2, precision.INT8, precision.None},
		{"fp32", "fp32, 3=bf16", 3, precision.BF16, precision.FP32},
		{"fp32, 3=bf16, 12=fp16", "fp32, 3=bf16, 4=int8, 12=fp16", 4, precision.INT8, precision.FP32},
		{"fp32, 3=bf16", "fp32", 3, precision.FP32, precision.None},
	} {
		got, err := precision.With(tt.value, tt.version, tt.p, tt.fallback)
		if got != tt.want || err != nil {
			t.Errorf("%q with %d=%s: %q, %v; want %q", tt.value, tt.version, tt.p, got, err, tt.want)
		}
	}
}

// TestParseBound checks the values of the parameter "fidelity".
func TestParseBound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ value, want, err string }{
		{"cosine=0.99", "cosine=0.99", ""},
		{" top1 = 0.98 , cosine=0.985,difference=0.5,mean_cosine=1", "cosine=0.985, mean_cosine=1, top1=0.98, difference=0.5", ""},
		{"", "", "'' is no condition"},
		{"cosine", "", "'cosine' has no number that it can be"},
		{"cosine=2", "", "'cosine=2' has no number"},
		{"cosine=NaN", "", "has no number"},
		{"top1=-0.1", "", "has no number"},
		{"difference=Inf", "", "has no number"},
		{"cosine=0.9,cosine=0.8", "", "'cosine' is there twice"},
		{"rmse=1", "", "'rmse=1' is no condition: expected conditions such as 'cosine=0.99, top1=0.98'"},
	} {
		b, err := precision.ParseBound(tt.value)
		got := ""
		if b != nil {
			got = b.String()
		}
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %q, %v; want %q, %q", tt.value, got, err, tt.want, tt.err)
		}
	}
}

// FuzzParameters checks that no value of the parameters crashes, and that what is printed is read back as the same.
func FuzzParameters(f *testing.F) {
	for _, s := range []string{"fp32, 2=int8", "cosine=0.99,top1=1", "=", ",", "1=int8,1=int8", "difference=1e308"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		cfg := &modelconfig.ModelConfig{Parameters: map[string]*modelconfig.ModelParameter{"precision": {StringValue: value}}}
		if _, err := precision.Declared(cfg, 2); err == nil {
			again, err := precision.With(value, 7, precision.INT8, precision.None)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := precision.Declared(&modelconfig.ModelConfig{Parameters: map[string]*modelconfig.ModelParameter{"precision": {StringValue: again}}}, 7); got != precision.INT8 || err != nil {
				t.Fatalf("%q: %q, %v", again, got, err)
			}
		}
		if b, err := precision.ParseBound(value); err == nil {
			again, err := precision.ParseBound(b.String())
			if err != nil || again.String() != b.String() {
				t.Fatalf("%q: %v, %v", b, again, err)
			}
		}
	})
}

// TestProcessor checks what follows from the flags of a processor.
func TestProcessor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		flags             string
		exact, bf16, fp16 bool
		text              string
	}{
		{"avx2 fma", false, false, false, "x: no int8; no bf16; no fp16"},
		{"avx_vnni", true, false, false, "x: int8 by VNNI; no bf16; no fp16"},
		{"avx512_vnni avx_vnni amx_int8 avx512_bf16 amx_bf16 avx512_fp16", true, true, true, "x: int8 by VNNI, AMX-INT8; bf16 by AVX512-BF16, AMX-BF16; fp16 by AVX512-FP16"},
		{"asimd asimddp asimdhp", true, false, true, "x: int8 by DotProd; no bf16; fp16 by FP16"},
		{"asimddp i8mm bf16 asimdhp", true, true, true, "x: int8 by DotProd, I8MM; bf16 by BF16; fp16 by FP16"},
	} {
		p := precision.ProcessorOf("x", strings.Fields(tt.flags))
		if p.ExactInt8() != tt.exact || p.FastBF16() != tt.bf16 || p.FastFP16() != tt.fp16 || p.String() != tt.text {
			t.Errorf("%s: exact %v, bf16 %v, fp16 %v, %q", tt.flags, p.ExactInt8(), p.FastBF16(), p.FastFP16(), p)
		}
	}
}
