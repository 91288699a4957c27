package web_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/server/web"
)

// TestWrongTokensAreLogged checks that guesses of the token are counted and in the log, without the guesses, and that they do not fill it:
// at an endpoint that needs the token, and at the one by which a page learns whether its token is right.
func TestWrongTokensAreLogged(t *testing.T) {
	t.Parallel()
	for _, request := range []string{"PUT /ui/api/sampling", "GET /ui/api/session"} {
		var lines bytes.Buffer
		now := time.Unix(1_800_000_000, 0)
		guard, err := identity.Open(t.Context(), identity.Settings{
			DashboardToken: "right", Log: slog.New(slog.NewTextHandler(&lines, nil)), Now: func() time.Time { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer guard.Close()
		x := &fakeStore{}
		s := web.New(web.Settings{Inspector: x, Overview: x, Token: "right", Guard: guard})
		defer s.Close()
		method, path, _ := strings.Cut(request, " ")
		ask := func(n int, token string) {
			for range n {
				code, body := send(s, method, path, `{}`, "Authorization", "Bearer "+token)
				if right := code == 200 && !strings.Contains(body, `"admitted":false`); right != (token == "right") {
					t.Errorf("%s with %q: %d, %s", request, token, code, body)
				}
			}
		}
		ask(1, "right")
		if lines.Len() > 0 {
			t.Errorf("the right token is logged: %s", &lines)
		}
		ask(300, "guess")
		now = now.Add(10 * time.Second)
		ask(300, "guess")
		text := lines.String()
		if n := strings.Count(text, "\n"); n != 11 || !strings.Contains(text, "a request was refused") || !strings.Contains(text, "from=192.0.2.1:1234") ||
			!strings.Contains(text, "not_logged_before=290") || strings.Contains(text, "guess") {
			t.Errorf("%s: 600 wrong tokens in two bursts are logged as:\n%s", request, text)
		}
		if _, forbidden, _ := guard.Refusals(); forbidden != 600 {
			t.Errorf("%s: %d refusals are counted, want 600", request, forbidden)
		}
	}
}
