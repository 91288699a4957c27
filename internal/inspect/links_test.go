package inspect_test

import (
	"testing"

	"github.com/tutti-server/tutti/internal/inspect"
)

// TestLinks checks the addresses of a trace in other programs, and the errors of templates.
func TestLinks(t *testing.T) {
	t.Parallel()
	v := &inspect.TraceView{TraceSummary: inspect.TraceSummary{ID: "0af7651916cd43dd8448eb211c80319c", Span: "b7/&ad", StartUs: 1_500_900, DurationNs: 2_000_000}}
	tests := []struct{ text, want, err string }{
		{"Jaeger=https://jaeger/trace/{trace}", "https://jaeger/trace/0af7651916cd43dd8448eb211c80319c", ""},
		{
			" Tempo = http://g:3000/explore?left={\"datasource\":\"tempo\",\"queries\":[{\"query\":\"{trace}\"}]}&from={start_ms}&to={end_ms}",
			"http://g:3000/explore?left={\"datasource\":\"tempo\",\"queries\":[{\"query\":\"0af7651916cd43dd8448eb211c80319c\"}]}&from=1500&to=1503", "",
		},
		{"a=http://h/{trace}?s={span}", "http://h/0af7651916cd43dd8448eb211c80319c?s=b7%2F%26ad", ""},
		{"https://jaeger/{trace}", "", "'https://jaeger/{trace}' is no link of a trace, expected NAME=URL with a name of at most 40 bytes"},
		{"a=http://h/", "", "the URL of the link 'a' has no {trace}: 'http://h/'"},
		{"a=http://h/{trace}/{tenant}", "", "the URL of the link 'a' has {tenant}, expected {trace}, {span}, {start_ms} and {end_ms} only"},
		{"a=javascript:alert({trace})", "", "the URL of the link 'a' is 'javascript:alert({trace})', expected http://HOST/PATH or https://HOST/PATH with {trace}"},
	}
	for _, tt := range tests {
		l, err := inspect.ParseLinkTemplate(tt.text)
		switch {
		case tt.err != "":
			if err == nil || err.Error() != tt.err {
				t.Errorf("%s: %v, want %s", tt.text, err, tt.err)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.text, err)
		default:
			if got := l.Of(v); got.URL != tt.want {
				t.Errorf("%s: %s, want %s", tt.text, got.URL, tt.want)
			}
		}
	}
}
