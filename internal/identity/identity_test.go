package identity_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/identity"
)

const (
	secret = "0123456789abcdef-ci"
	roles  = `
roles:
  use: {apis: [health, metadata, inference, statistics], models: ["text-*", other]}
  run: {apis: ["*"]}
  trace: {apis: [trace], models: [m]}
`
	tokens = "tokens:\n- {name: ci, env: CI_TOKEN, roles: [use]}\n"
)

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Now()} }

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }

func (c *clock) move(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.at = c.at.Add(d) }

func getenv(name string) string {
	return map[string]string{"CI_TOKEN": secret, "SHORT": "abc", "SPACE": "0123456789 abcdefghij"}[name]
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func open(t *testing.T, text string, change ...func(*identity.Settings)) *identity.Guard {
	t.Helper()
	set := identity.Settings{Getenv: getenv}
	if text != "" {
		set.File = write(t, text)
	}
	for _, f := range change {
		f(&set)
	}
	g, err := identity.Open(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func bearer(token string) identity.Credentials {
	return identity.Credentials{Authorization: []string{"Bearer " + token}}
}

// reason returns why err refuses a request, -1 if it does not.
func reason(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return -1
	}
	r, ok := errors.AsType[*identity.RefusedError](err)
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	if strings.Contains(r.Text, secret) {
		t.Error("the error has the secret:", r.Text)
	}
	return int(r.Reason)
}

func TestTokens(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("another token of a digest"))
	folder := t.TempDir()
	named := filepath.Join(folder, "token")
	if err := os.WriteFile(named, []byte("a-token-in-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := open(t, roles+tokens+"- {name: digest, sha256: "+hex.EncodeToString(sum[:])+", roles: [run]}\n- {name: file, file: "+named+", roles: [use, trace]}\n",
		func(s *identity.Settings) { s.DashboardToken = "dash" })
	for _, tt := range []struct {
		name   string
		values []string
		want   string // the name, empty for a refusal
	}{
		{"of the environment", []string{"Bearer " + secret}, "ci"},
		{"scheme in another case", []string{"bearer " + secret}, "ci"},
		{"of a file", []string{"Bearer a-token-in-a-file"}, "file"},
		{"the dashboard's", []string{"Bearer dash"}, "dashboard-token"},
		{"with spaces", []string{"Bearer  " + secret + " "}, "ci"},
		{"none", nil, ""},
		{"empty", []string{""}, ""},
		{"no scheme", []string{secret}, ""},
		{"Basic", []string{"Basic " + secret}, ""},
		{"wrong", []string{"Bearer wrong"}, ""},
		{"a prefix", []string{"Bearer " + secret[:len(secret)-1]}, ""},
		{"longer", []string{"Bearer " + secret + "x"}, ""},
		{"the digest itself", []string{"Bearer " + hex.EncodeToString(sum[:])}, ""},
		{"wrong, then right", []string{"Bearer wrong", "Bearer " + secret}, ""},
		{"right, then wrong", []string{"Bearer " + secret, "Bearer wrong"}, ""},
		{"right twice", []string{"Bearer " + secret, "Bearer " + secret}, ""},
		{"two in one", []string{"Bearer wrong, Bearer " + secret}, ""},
		{"huge", []string{"Bearer " + strings.Repeat("a", 1<<20)}, ""},
		{"looks signed", []string{"Bearer a.b.c"}, ""},
	} {
		who, err := g.Authenticate(t.Context(), identity.Credentials{Authorization: tt.values})
		switch {
		case tt.want == "" && reason(t, err) != int(identity.Unauthenticated):
			t.Errorf("%s: %v, %v", tt.name, who, err)
		case tt.want != "" && (err != nil || who.Name != tt.want):
			t.Errorf("%s: %v, %v, want %s", tt.name, who, err, tt.want)
		}
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	g := open(t, roles+tokens+"anonymous: trace\n")
	ci, err := g.Authenticate(t.Context(), bearer(secret))
	if err != nil {
		t.Fatal(err)
	}
	anonymous, err := g.Authenticate(t.Context(), identity.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		who   *identity.Identity
		group identity.Group
		model string
		want  string // a part of the error
	}{
		{ci, identity.GroupOf(infer.APIInference), "text-en", ""},
		{ci, identity.GroupOf(infer.APIInference), "other", ""},
		{ci, identity.GroupOf(infer.APIInference), "image", "'ci' may not use 'inference' of model 'image': its role (use) may use health, metadata, inference, statistics"},
		{ci, identity.GroupOf(infer.APIStatistics), "", ""}, // a list, which is filtered
		{ci, identity.GroupOf(infer.APIModelRepository), "text-en", "'model-repository' of model 'text-en'"},
		{ci, identity.GroupDashboard, "", "may not use 'dashboard'"},
		{anonymous, identity.GroupOf(infer.APITrace), "m", ""},
		{anonymous, identity.GroupOf(infer.APITrace), "", "'trace' of all models"},
		{anonymous, identity.GroupOf(infer.APIInference), "m", "'anonymous' may not"},
		{nil, identity.GroupMetrics, "", ""},
	} {
		err := tt.who.May(tt.group, tt.model)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %s of '%s': %v, want %s", tt.who, tt.group, tt.model, err, tt.want)
		}
	}
	if ci.MayAll(identity.GroupOf(infer.APIStatistics)) == nil {
		t.Error("a role that is limited to some models may see the statistics of all")
	}
}

// TestFileErrors has mistakes in auth files. Each error names the file and the line.
func TestFileErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"", "is empty"},
		{"{}", "line 1: nobody could use the server"},
		{"- a", "line 1: the file: expected a mapping"},
		{"a: [", "yaml: "},
		{roles + tokens + "rols: {}\n", "line 8: the file: unknown key 'rols', expected one of anonymous, certificates, issuers, roles, tokens; did you mean 'roles'?"},
		{"roles: {a: {}}\nanonymous: a", "role 'a': it has no apis, expected some of health"},
		{"roles: {a: {apis: infer}}\nanonymous: a", "there is no API 'infer', expected health, metadata, inference"},
		{"roles: {a: {apis: health, models: '['}}\nanonymous: a", "the pattern '[' of models is invalid"},
		{"roles: {a: {apis: [dashboard], models: m}}\nanonymous: a", "'dashboard' concerns all models"},
		{"roles: {a: {apis: [metrics, health], models: m}}\nanonymous: a", "'metrics' concerns all models"},
		{"roles: {a: {apis: health}, a: {apis: health}}\nanonymous: a", "role 'a' is there twice"},
		{"anonymous: nobody", "line 1: there is no role 'nobody'"},
		{roles + "tokens: [{name: a, env: SHORT, roles: use}]", "line 6: the token in variable SHORT has 3 characters, expected at least 16"},
		{roles + "tokens: [{name: a, env: MISSING, roles: use}]", "variable MISSING has 0 characters"},
		{roles + "tokens: [{name: a, env: SPACE, roles: use}]", "a character that a header cannot carry"},
		{roles + "tokens: [{name: a, value: x, roles: use}]", "unknown key 'value', expected one of env, file, name, roles, sha256"},
		{roles + "tokens: [{name: a, sha256: abc, roles: use}]", "expected 64 hexadecimal digits"},
		{roles + "tokens: [{name: a, file: missing, roles: use}]", "the token's file: open "},
		{roles + "tokens: [{name: a, roles: use}]", "token 'a': expected one of file, env and sha256, found 0"},
		{roles + "tokens: [{name: a, env: CI_TOKEN}]", "token 'a' has no roles"},
		{roles + "tokens: [{env: CI_TOKEN, roles: use}]", "a token has no name"},
		{roles + tokens + "- {name: b, env: CI_TOKEN, roles: run}", "token 'b' has the value of another token"},
		{roles + "tokens:\n- {name: a,\n   name: b}", "line 8: a token: key 'name' is in line 7 already"},
		{roles + "certificates: [{roles: use}]", "no subject, common-name or san"},
		{roles + "issuers: [{issuer: 'https://i', roles: use}]", "has no audience"},
		{roles + "issuers: [{issuer: 'http://i.example', roles: use}]", "is not encrypted"},
		{roles + "issuers: [{issuer: 'https://i', audience: a}]", "gives no role"},
		{roles + "issuers: [{issuer: 'https://i', audience: a, roles: use, algorithms: HS256}]", "the algorithm 'HS256' is not accepted"},
		{roles + "issuers: [{issuer: 'https://i', audience: a, roles: use, algorithms: none}]", "the algorithm 'none' is not accepted"},
		{roles + "issuers: [{issuer: 'https://i', audience: a, roles: use, clock-skew: 3600}]", "expected seconds from 0 to 300"},
		{roles + "issuers: [{issuer: 'https://i', audience: a, roles: use, roles-claim: groups}]", "roles-claim and map go together"},
	} {
		_, err := identity.Open(t.Context(), identity.Settings{File: write(t, tt.text), Getenv: getenv})
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "auth file '") {
			t.Errorf("%q: %v, want %s", tt.text, err, tt.want)
		}
	}
}

// TestWritableFiles checks that files which others can write are refused.
func TestWritableFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode os.FileMode
		ok   bool
	}{{0o600, true}, {0o644, true}, {0o440, true}, {0o660, false}, {0o602, false}, {0o666, false}} {
		file := write(t, roles+"anonymous: use")
		if err := os.Chmod(file, tt.mode); err != nil {
			t.Fatal(err)
		}
		_, err := identity.Open(t.Context(), identity.Settings{File: file})
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "chmod go-w") {
			t.Errorf("%#o: %v", tt.mode, err)
		}
	}
	if _, err := identity.Open(t.Context(), identity.Settings{File: "/missing/auth.yaml"}); err == nil || !strings.Contains(err.Error(), "/missing/auth.yaml") {
		t.Error(err)
	}
	if _, err := identity.Open(t.Context(), identity.Settings{File: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "is no regular file") {
		t.Error(err)
	}
}

// TestReload changes the file under the guard: to another, to one that cannot be used, and back.
func TestReload(t *testing.T) {
	t.Parallel()
	c, logged := newClock(), &bytes.Buffer{}
	file := write(t, roles+tokens)
	g, err := identity.Open(t.Context(), identity.Settings{File: file, Getenv: getenv, Now: c.now, Log: slog.New(slog.NewTextHandler(logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	step := func(text string, code int) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.move(2 * time.Second)
		_, err := g.Authenticate(t.Context(), bearer(secret))
		if got := reason(t, err); got != code {
			t.Errorf("%q: %v, want %d", text, err, code)
		}
	}
	step(roles+tokens, -1)
	step(roles+"anonymous: use", int(identity.Unauthenticated)) // the token is gone
	step(roles+tokens+"# again", -1)
	step("nonsense", -1) // the one before stays
	if !strings.Contains(logged.String(), "cannot be used, the one before stays in force") {
		t.Error(logged)
	}
}

// TestAuditFullDisk writes an audit log to a device that is always full: the log says what is full, and what to do.
func TestAuditFullDisk(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	logged := &bytes.Buffer{}
	g := open(t, roles+tokens, func(s *identity.Settings) { s.Audit, s.Log = "/dev/full", slog.New(slog.NewTextHandler(logged, nil)) })
	g.Record(nil, identity.Event{Action: "model.load"}, nil)
	for _, want := range []string{"the audit log cannot be written", "the disk of '/dev/full' is full", "free space there, or set another --audit-log"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log is %q, want %q", logged, want)
		}
	}
}

// TestAudit records changes and more refused requests than the log takes.
func TestAudit(t *testing.T) {
	t.Parallel()
	c, out, logged := newClock(), &bytes.Buffer{}, &bytes.Buffer{}
	g := open(t, roles+tokens, func(s *identity.Settings) {
		s.Audit, s.Stderr, s.Now, s.Log = identity.StandardError, out, c.now, slog.New(slog.NewTextHandler(logged, nil))
	})
	ci, err := g.Authenticate(t.Context(), bearer(secret))
	if err != nil {
		t.Fatal(err)
	}
	e := identity.Event{From: "127.0.0.1:1", Via: "http", Action: "model.load", Object: strings.Repeat("m", 1<<16)}
	g.Record(ci, e, nil)
	g.Record(nil, e, errors.New("no such model"))
	for range 300 {
		_, err := g.Authenticate(t.Context(), bearer("wrong"))
		g.Refuse(nil, e, err)
	}
	c.move(time.Minute)
	g.Refuse(ci, e, ci.May(identity.GroupMetrics, ""))
	var list []identity.Event
	for line := range strings.Lines(out.String()) {
		var e identity.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	if n := len(list); n < 50 || n > 200 {
		t.Fatalf("%d lines", n)
	}
	if a, b := list[0], list[1]; a.Who != "ci" || a.By != "token" || a.Outcome != "ok" || len(a.Object) > 600 || b.Outcome != "failed" || b.Error != "no such model" {
		t.Errorf("%+v\n%+v", a, b)
	}
	last := list[len(list)-1]
	if last.Who != "ci" || last.Outcome != "refused" || last.Lost != 200 || last.Time == "" {
		t.Errorf("%+v", last)
	}
	if n := strings.Count(logged.String(), "a request was refused"); n == 0 || n > 20 {
		t.Errorf("%d lines in the log", n)
	}
	if a, b, _ := g.Refusals(); a != 300 || b != 1 {
		t.Errorf("%d and %d counted", a, b)
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	for _, tt := range []struct {
		address string
		header  func(string) string
		want    bool
	}{
		{"127.0.0.1:5", none, true},
		{"[::1]:5", none, true},
		{"[::ffff:127.0.0.1]:5", none, true},
		{"10.0.0.1:5", none, false},
		{"", none, false},
		{"127.0.0.1:5", func(name string) string { return map[string]string{"X-Forwarded-For": "10.0.0.1"}[name] }, false},
	} {
		if got := identity.Local(tt.address, tt.header); got != tt.want {
			t.Errorf("%s: %v", tt.address, got)
		}
	}
	g := open(t, "")
	if g.Control("model.load", true, false) != nil || g.Control("model.load", false, true) != nil {
		t.Error("refused")
	}
	if err := g.Control("model.load", false, false); err == nil || !strings.Contains(err.Error(), "--allow-remote-control=true") {
		t.Error(err)
	}
	if err := open(t, "", func(s *identity.Settings) { s.RemoteControl = true }).Control("model.load", false, false); err != nil {
		t.Error(err)
	}
	var nobody *identity.Guard
	if nobody.Required() || nobody.Control("x", false, false) != nil || nobody.Close() != nil {
		t.Error("the nil guard refuses")
	}
	if identity.From(context.Background()) != nil {
		t.Error("an identity out of nothing")
	}
}

// TestNamespaces checks roles for the models of some repositories.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	const file = `
roles:
  team: {apis: [inference, model-repository, trace], namespaces: [/models/a/, "s3://bucket/*"]}
  both: {apis: [inference], models: ["text-*"], namespaces: [/models/b]}
tokens:
- {name: one, sha256: "` + "%s" + `", roles: team}
- {name: two, env: CI_TOKEN, roles: both}
`
	const other = "another-token-of-16"
	sum := sha256.Sum256([]byte(other))
	text := strings.Replace(file, "%s", hex.EncodeToString(sum[:]), 1)
	where := map[string][]string{
		"a": {"/models/a"}, "b": {"/models/b"}, "text-b": {"/models/b"}, "shared": {"/models/a", "/models/b"}, "cloud": {"s3://bucket/x"},
		"deep": {"s3://bucket/x/y"}, "sent": {""}, "prefix": {"/models/a-other"},
	}
	g := open(t, text, func(s *identity.Settings) {
		s.Namespaces = func(model string, control bool) []string {
			if model == "a" && control {
				return []string{"/models/a", "/models/b"} // a load would take both
			}
			return where[model]
		}
	})
	for token, want := range map[string]string{other: "a cloud", secret: "text-b"} {
		who, err := g.Authenticate(t.Context(), bearer(token))
		if err != nil {
			t.Fatal(err)
		}
		for model := range where {
			if got := who.Sees(identity.GroupOf(infer.APIInference), model); got != strings.Contains(" "+want+" ", " "+model+" ") {
				t.Errorf("%s: %s: %v", who.Name, model, got)
			}
		}
		if who.Sees(identity.GroupOf(infer.APIInference), "missing") || who.Sees(identity.GroupOf(infer.APIModelRepository), "a") ||
			who.Sees(identity.GroupOf(infer.APITrace), "") || who.MayAll(identity.GroupOf(infer.APIInference)) == nil {
			t.Errorf("%s may use what is not in its namespaces", who.Name)
		}
	}
	for text, want := range map[string]string{
		strings.Replace(text, "trace]", "logging]", 1): "'logging' concerns all models",
		strings.Replace(text, "s3://", "[s3://", 1):    "of namespaces is invalid",
	} {
		if _, err := identity.Open(t.Context(), identity.Settings{File: write(t, text), Getenv: getenv, Namespaces: func(string, bool) []string { return nil }}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := identity.Open(t.Context(), identity.Settings{File: write(t, text), Getenv: getenv}); err == nil || !strings.Contains(err.Error(), "--model-namespacing=true") {
		t.Error(err)
	}
}

// TestClockSetBack removes a token and sets the clock back before the guard looks at the file again: the token must end nevertheless. Refusals
// are logged as before.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	c, logged := newClock(), &bytes.Buffer{}
	c.at = c.at.Round(0) // as of a clock that may be set
	file := write(t, roles+tokens)
	g, err := identity.Open(t.Context(), identity.Settings{File: file, Getenv: getenv, Now: c.now, Log: slog.New(slog.NewTextHandler(logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := g.Authenticate(t.Context(), bearer(secret)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(roles+"anonymous: use"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		c.move(-24 * time.Hour)
		_, err := g.Authenticate(t.Context(), bearer(secret))
		if reason(t, err) != int(identity.Unauthenticated) {
			t.Fatalf("a token that was removed: %v", err)
		}
		g.Refuse(nil, identity.Event{}, err)
	}
	c.move(time.Minute)
	g.Refuse(nil, identity.Event{}, &identity.RefusedError{Text: "again"})
	if n := strings.Count(logged.String(), "a request was refused"); n != 11 {
		t.Errorf("%d lines in the log, want 10 at once and one a minute later", n)
	}
}
