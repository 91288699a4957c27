package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
)

// TestUnknownParams checks the warning about unknown parameters: the file, the line, the nearest name, and that the
// options can make it an error.
// shows: config.parameters
func TestUnknownParams(t *testing.T) {
	t.Parallel()
	known := map[string][]string{"identity": {"execute_delay_ms", "session.*"}, "square": {}}
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"known":    {"backend: \"identity\"\n" + param("execute_delay_ms") + param("session.x") + param("pad.A") + param("max_batch_elements"), nil},
		"typo":     {"backend: \"identity\"\n" + param("exeute_delay_ms"), []string{`TUT2028 2:1 parameter 'exeute_delay_ms' of model 'm' has no effect: backend 'identity' does not read it. Did you mean "execute_delay_ms"?`}},
		"none":     {"backend: \"square\"\n" + param("execute_delay_ms"), []string{`TUT2028 2:1 parameter 'execute_delay_ms' of model 'm' has no effect: backend 'square' does not read it.`}},
		"any":      {"backend: \"python\"\n" + param("mine"), nil},
		"ensemble": {"platform: \"ensemble\"\n" + param("owner"), []string{`TUT2028 2:1 parameter 'owner' of model 'm' has no effect: an ensemble does not read it.`}},
		"resident": {"platform: \"ensemble\"\n" + param("require_resident") + param("require_residnt"), []string{`TUT2028 3:1 parameter 'require_residnt' of model 'm' has no effect: an ensemble does not read it. Did you mean "require_resident"?`}},
		"route":    {"platform: \"ensemble\"\n" + param("ensemble.split") + param("ensemble.canry"), []string{`TUT2028 3:1 parameter 'ensemble.canry' of model 'm' has no effect: an ensemble does not read it. Did you mean "ensemble.canary"?`}},
		"places":   {"backend: \"identity\"\n" + param("a") + param("b"), []string{`TUT2028 2:1 parameter 'a' of model 'm' has no effect: backend 'identity' does not read it.`, `TUT2028 3:1 parameter 'b' of model 'm' has no effect: backend 'identity' does not read it.`}},
	} {
		for _, strict := range []bool{false, true} {
			o := &config.Options{Params: func(backend string) []string { return known[backend] }, StrictParams: strict}
			cfg := parse(t, tt.text)
			list := config.NormaliseAndCheck(cfg, config.Source{Name: "m", Dir: t.TempDir()}, o)
			config.NewPositions("m/config.pbtxt", []byte(tt.text)).Locate(list)
			var got []string
			for i := range list {
				d := &list[i]
				if d.Code != config.UnknownParam {
					continue
				}
				got = append(got, strings.TrimPrefix(d.String(), "m/config.pbtxt:"))
				got[len(got)-1], _, _ = strings.Cut(got[len(got)-1], "\n")
				if (d.Err() != nil) != strict {
					t.Errorf("%s, strict %v: error %v", name, strict, d.Err())
				}
			}
			severity := map[bool]string{false: "warning", true: "error"}[strict]
			for i := range got {
				got[i] = strings.Replace(got[i], ": "+severity+" TUT2028: ", " ", 1)
				got[i] = "TUT2028 " + got[i]
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%s, strict %v (-want +got):\n%s", name, strict, d)
			}
		}
	}
}

func param(key string) string {
	return `parameters { key: "` + key + `" value { string_value: "1" } }` + "\n"
}
