package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
)

func valued(key, value string) string {
	return fmt.Sprintf("parameters { key: %q value { string_value: %q } }\n", key, value)
}

// TestTool checks the parameters of tools: what is wrong with them, and where.
func TestTool(t *testing.T) {
	t.Parallel()
	const ports = `input [{ name: "TEXT" data_type: TYPE_STRING dims: 1 }, { name: "K" data_type: TYPE_INT32 dims: 1 }] output { name: "OUT" data_type: TYPE_FP32 dims: 1 }` + "\n"
	about := valued("api.tool", "Embeds a text.")
	for name, tt := range map[string]struct{ name, text, want string }{
		"right":         {"m", about + valued("api.tool.about.TEXT", "a text") + valued("api.tool.about.OUT", "a number") + valued("api.tool.binary", "TEXT"), ""},
		"empty":         {"m", valued("api.tool", " "), "2:1: error TUT2030: parameter 'api.tool' of model 'm' is empty, expected a sentence that says when to call the tool"},
		"name":          {"my model", about, "2:1: error TUT2030: model 'my model' cannot be a tool: expected a name of 1 to 128 letters, digits and characters of '_', '-' and '.'"},
		"no tool":       {"m", valued("api.tool.binary", "TEXT"), "2:1: error TUT2030: parameter 'api.tool.binary' of model 'm' has no effect without 'api.tool', expected that one, too"},
		"no such input": {"m", about + valued("api.tool.binary", "TEXT, TEXTS"), `3:1: error TUT2030: parameter 'api.tool.binary' of model 'm' names 'TEXTS', expected inputs out of TEXT, K. Did you mean "TEXT"?`},
		"no strings":    {"m", about + valued("api.tool.binary", "K"), "3:1: error TUT2030: parameter 'api.tool.binary' of model 'm' names the input 'K' of type TYPE_INT32, expected inputs of TYPE_STRING"},
		"no tensor":     {"m", about + valued("api.tool.about.OUTT", "a number"), `3:1: error TUT2030: parameter 'api.tool.about.OUTT' of model 'm' describes 'OUTT', expected one of TEXT, K, OUT. Did you mean "OUT"?`},
		"typo":          {"m", about + valued("api.tool.binry", "TEXT"), `3:1: warning TUT2028: parameter 'api.tool.binry' of model 'm' has no effect: backend 'identity' does not read it. Did you mean "api.tool.binary"?`},
	} {
		text := `backend: "identity" ` + ports + tt.text
		cfg := parse(t, text)
		cfg.Name = tt.name
		list := config.NormaliseAndCheck(cfg, config.Source{Name: tt.name, Dir: t.TempDir()}, &config.Options{Params: func(string) []string { return []string{} }})
		config.NewPositions("config.pbtxt", []byte(text)).Locate(list)
		var got []string
		for i := range list {
			if list[i].Code == config.BadParam || list[i].Code == config.UnknownParam {
				line, _, _ := strings.Cut(list[i].String(), "\n")
				got = append(got, strings.TrimPrefix(line, "config.pbtxt:"))
			}
		}
		if d := cmp.Diff(tt.want, strings.Join(got, "\n")); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if tool, ok := config.ToolOf(cfg); name == "right" && (!ok || tool.Description != "Embeds a text." || tool.About("OUT") != "a number" || !tool.Binary("TEXT") || tool.Binary("K")) {
			t.Errorf("%s: the tool is %+v, %v", name, tool, ok)
		}
	}
	if _, ok := config.ToolOf(parse(t, ports)); ok {
		t.Error("a model without a description is a tool")
	}
}
