// Package precision is the declared precision of models, and the gate that guards it.
//
//	precision.go   the parameter "precision" of config.pbtxt
//	file.go        the precision of a model file: ONNX, OpenVINO's IR
//	processor.go   what the processor computes fast: VNNI, BF16, AMX
//	bound.go       the parameter "fidelity": how close the outputs must be to those of another version
//	compare.go     the figures of two versions' outputs
//	record.go      the stored figures, and the check of a version at load
//
// A configuration declares in which precision a model computes:
//
//	parameters { key: "precision" value { string_value: "fp32, 2=int8" } }
//	parameters { key: "fidelity" value { string_value: "cosine=0.99" } }
//
// Backends refuse a version whose file or machine does not have the declared precision. The repository refuses a version that has no
// stored figures (fidelity.json in its folder), figures of other files, or figures beyond the bound.
package precision

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The parameters of config.pbtxt.
const (
	Key         = "precision"
	FidelityKey = "fidelity"
)

// Precision is the precision of a model's matrix products and convolutions, as "precision" declares it.
type Precision string

// The precisions. None is that of a model that declares none.
const (
	None Precision = ""
	FP32 Precision = "fp32"
	BF16 Precision = "bf16"
	FP16 Precision = "fp16"
	INT8 Precision = "int8"
)

// all lists the values of the parameter.
var all = []Precision{FP32, BF16, FP16, INT8}

// Parse returns the precision of a name. It reports false for any other text.
func Parse(text string) (Precision, bool) {
	p := Precision(text)
	return p, slices.Contains(all, p)
}

// Declared returns the declared precision of a version, None without a declaration.
//
// The value of the parameter is one precision for all versions, or a list: "fp32, 2=int8" declares int8 for version 2 and fp32 for all
// others. Without a precision for all, other versions declare none.
func Declared(cfg *modelconfig.ModelConfig, version int64) (Precision, error) {
	param, ok := cfg.GetParameters()[Key]
	if !ok {
		return None, nil
	}
	list, err := parseList(param.GetStringValue())
	if err != nil {
		return None, err
	}
	if p, ok := list[version]; ok {
		return p, nil
	}
	return list[everyVersion], nil
}

// everyVersion is the key of the precision of versions that are not listed.
const everyVersion = 0

// parseList returns the precisions of a value by version.
func parseList(value string) (map[int64]Precision, error) {
	list := map[int64]Precision{}
	for part := range strings.SplitSeq(value, ",") {
		version, name := int64(everyVersion), strings.TrimSpace(part)
		if number, after, ok := strings.Cut(name, "="); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			if err != nil || n < 1 {
				return nil, unexpected(value, "'"+number+"' is no version")
			}
			version, name = n, strings.TrimSpace(after)
		}
		p, ok := Parse(name)
		if !ok {
			return nil, unexpected(value, "'"+name+"' is no precision")
		}
		if _, twice := list[version]; twice {
			return nil, unexpected(value, "'"+strings.TrimSpace(part)+"' is the second one for the same versions")
		}
		list[version] = p
	}
	return list, nil
}

func unexpected(value, why string) error {
	return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': %s: expected fp32, bf16, fp16 or int8, or a list "+
		"such as 'fp32, 2=int8', where 2 is a version", value, Key, why)
}

// With returns the value of the parameter in which a version has a precision: value with one entry added or replaced. An empty value
// declares fallback for all other versions, unless that is None.
func With(value string, version int64, p, fallback Precision) (string, error) {
	list := map[int64]Precision{}
	if strings.TrimSpace(value) != "" {
		var err error
		if list, err = parseList(value); err != nil {
			return "", err
		}
	} else if fallback != None {
		list[everyVersion] = fallback
	}
	if list[version] = p; list[everyVersion] == p {
		delete(list, version)
	}
	var parts []string
	if p, ok := list[everyVersion]; ok {
		parts = append(parts, string(p))
	}
	var versions []int64
	for v := range list {
		if v != everyVersion {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	for _, v := range versions {
		parts = append(parts, strconv.FormatInt(v, 10)+"="+string(list[v]))
	}
	return strings.Join(parts, ", "), nil
}
