package inference

import (
	"strconv"
	"strings"
	"time"
)

// preferences are the preferences of a request that the server knows (RFC 7240).
type preferences struct {
	later bool          // respond-async
	wait  time.Duration // for the result, before the response says that there is none yet
	waits bool          // wait was given
}

// maxWait bounds wait.
const maxWait = 5 * time.Minute

// parsePrefer reads the values of the header Prefer. Of a repeated preference the first counts, and what cannot be read is
// ignored. For example, "respond-async, wait=10".
func parsePrefer(list []string) (p preferences) {
	seen := false
	for _, line := range list {
		for line != "" {
			var part string
			part, line = cutToken(line, ',')
			part, _ = cutToken(part, ';') // parameters
			name, value, _ := strings.Cut(part, "=")
			switch name = strings.TrimSpace(name); {
			case strings.EqualFold(name, "respond-async"):
				p.later = true
			case strings.EqualFold(name, "wait") && !seen:
				seen = true
				n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
				if err == nil {
					p.wait, p.waits = min(time.Duration(n)*time.Second, maxWait), true
				}
			}
		}
	}
	return p
}

// cutToken splits a value at a separator outside of quotes.
func cutToken(s string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == separator && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// applied is the header Preference-Applied of a response.
func (p *preferences) applied() string {
	if !p.waits {
		return "respond-async"
	}
	return "respond-async, wait=" + strconv.Itoa(int(p.wait/time.Second))
}
