package inspect

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// LinkView is an address of a trace in another program.
type LinkView struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// LinkTemplate makes the address of a trace in another program, for example of Jaeger. The URL has {trace}, and may have {span}, {start_ms}
// and {end_ms}: the id of the trace, the id of the request's span, and when the request began and ended, in milliseconds since 1970.
type LinkTemplate struct{ Name, URL string }

// placeholder matches a placeholder of a LinkTemplate, and what looks like one.
var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

const maxLinkName = 40 // bounds the name of a LinkTemplate, which is the text of a button

// ParseLinkTemplate reads NAME=URL. For example: Jaeger=https://jaeger.example/trace/{trace}.
func ParseLinkTemplate(text string) (LinkTemplate, error) {
	name, address, ok := strings.Cut(text, "=")
	l := LinkTemplate{strings.TrimSpace(name), strings.TrimSpace(address)}
	if !ok || l.Name == "" || len(l.Name) > maxLinkName {
		return l, fmt.Errorf("'%s' is no link of a trace, expected NAME=URL with a name of at most %d bytes", text, maxLinkName)
	}
	u, err := url.Parse(placeholder.ReplaceAllString(l.URL, "0"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return l, fmt.Errorf("the URL of the link '%s' is '%s', expected http://HOST/PATH or https://HOST/PATH with {trace}", l.Name, l.URL)
	}
	known, found := (&TraceView{}).placeholders(), false
	for _, p := range placeholder.FindAllString(l.URL, -1) {
		if _, ok := known[p]; !ok {
			return l, fmt.Errorf("the URL of the link '%s' has %s, expected {trace}, {span}, {start_ms} and {end_ms} only", l.Name, p)
		}
		found = found || p == "{trace}"
	}
	if !found {
		return l, fmt.Errorf("the URL of the link '%s' has no {trace}: '%s'", l.Name, l.URL)
	}
	return l, nil
}

// Of returns the address of a trace. What is inserted is escaped.
func (l LinkTemplate) Of(v *TraceView) LinkView {
	values := v.placeholders()
	return LinkView{l.Name, placeholder.ReplaceAllStringFunc(l.URL, func(p string) string { return url.QueryEscape(values[p]) })}
}

func (v *TraceView) placeholders() map[string]string {
	return map[string]string{
		"{trace}": v.ID, "{span}": v.Span,
		"{start_ms}": strconv.FormatInt(v.StartUs/1000, 10), "{end_ms}": strconv.FormatInt((v.StartUs+v.DurationNs/1000+999)/1000, 10),
	}
}
