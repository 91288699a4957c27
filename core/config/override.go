package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

var (
	jsonUnknown = regexp.MustCompile(`unknown field "([^"]*)"`)
	jsonEnum    = regexp.MustCompile(`invalid value for enum field (\w+): "([^"]*)"`)
	jsonPlace   = regexp.MustCompile(`\(line (\d+):(\d+)\)`)
)

// ParseJSON reads the configuration of a load request, in the JSON of the configuration endpoint or of protobuf.
// Unknown fields are errors. An error starts with Triton's text and ends with a suggestion.
func ParseJSON(text string) (*modelconfig.ModelConfig, error) {
	if len(text) > MaxFileSize {
		return nil, Errorf(BadOverride, "", "Invalid config override: %d bytes, expected at most %d", len(text), MaxFileSize)
	}
	cfg := new(modelconfig.ModelConfig)
	err := protojson.Unmarshal([]byte(text), cfg)
	if err == nil {
		return cfg, nil
	}
	msg := strings.Trim(strings.TrimPrefix(err.Error(), "proto:"), " \t\r\n\u00a0")
	var syntax *json.SyntaxError
	if e := json.Unmarshal([]byte(text), new(json.RawMessage)); errors.As(e, &syntax) {
		at := positionOf([]byte(text), int(min(syntax.Offset, int64(len(text)))))
		msg = fmt.Sprintf("(line %d:%d): %s", at.line, at.column, syntax)
	}
	d := newDiagnostic(BadOverride, "", "Invalid config override: "+msg+jsonHint(msg))
	if m := jsonPlace.FindStringSubmatch(msg); m != nil {
		at := positionOf([]byte(text), offsetOf([]byte(text), m[1], m[2]))
		d.Line, d.Column = at.line, at.column
	}
	return nil, d.Err()
}

// jsonHint suggests a field or value. The parser does not say which message an unknown name was in, so all names of
// the schema are candidates.
func jsonHint(msg string) string {
	names, hint := map[string]bool{}, ""
	root := (*modelconfig.ModelConfig)(nil).ProtoReflect().Descriptor()
	if m := jsonUnknown.FindStringSubmatch(msg); m != nil {
		hint = DidYouMean(m[1], fieldNames(root))
		if hint == "" {
			eachField(root, "", func(_ string, fd protoreflect.FieldDescriptor) bool {
				names[fd.TextName()] = true
				return true
			})
			hint = DidYouMean(m[1], sortedKeys(names))
		}
	} else if m := jsonEnum.FindStringSubmatch(msg); m != nil {
		eachField(root, "", func(_ string, fd protoreflect.FieldDescriptor) bool {
			if fd.Enum() != nil && (fd.TextName() == m[1] || fd.JSONName() == m[1]) {
				for i := range fd.Enum().Values().Len() {
					names[string(fd.Enum().Values().Get(i).Name())] = true
				}
			}
			return true
		})
		hint = DidYouMean(m[2], sortedKeys(names))
	}
	if hint == "" {
		return ""
	}
	return "." + hint
}
