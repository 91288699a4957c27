package status_test

import (
	"context"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
)

// statusOf has the HTTP status and the gRPC code of the reasons whose front ends have others than those of their code.
var statusOf = map[status.Reason][2]string{
	status.DeadlineExpired: {"400", "DEADLINE_EXCEEDED"}, status.TooLarge: {"413", "RESOURCE_EXHAUSTED"},
	status.Unauthenticated: {"401", "UNAUTHENTICATED"}, status.PermissionDenied: {"403", "PERMISSION_DENIED"}, "CANCELLED": {"400", "CANCELLED"},
}

var words = regexp.MustCompile("([a-z])([A-Z])")

// TestErrorsPage checks that the table of docs/errors.md has every reason, with its statuses and whether it is retryable.
func TestErrorsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Reasons")
	var got, want []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, " | "); len(cells) == 6 && strings.HasPrefix(line, "| `") {
			got = append(got, strings.Join([]string{strings.Trim(cells[0], "| `"), cells[2], strings.Trim(cells[3], "`"), cells[4]}, " "))
		}
	}
	for _, r := range status.Reasons() {
		of, ok := statusOf[r]
		if !ok {
			c := r.Code()
			of = [2]string{strconv.Itoa(c.HTTP()), strings.ToUpper(words.ReplaceAllString(c.GRPC().String(), "${1}_$2"))}
		}
		retry := "no"
		if r.Retryable() {
			retry = "yes"
		}
		want = append(want, strings.Join([]string{string(r), of[0], of[1], retry}, " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table of docs/errors.md differs from the reasons (-want +got):\n%s", diff)
	}
}

func TestDetails(t *testing.T) {
	t.Parallel()
	full := &status.Error{Code: status.Unavailable, Msg: "full", Reason: status.QueueFull, Step: "detect", RetryAfter: time.Second, Finish: time.Minute}
	all := status.Details{Reason: status.QueueFull, Own: true, Retryable: true, RetryAfter: time.Second, Step: "detect", Finish: time.Minute}
	for _, tt := range []struct {
		name string
		err  error
		want status.Details
	}{
		{"as it is", full, all},
		{"prefixed", status.Prefixf(full, "a: "), all},
		{"the same code", status.Errorf(status.Unavailable, "a: %w", full), all},
		{"another code", status.Errorf(status.InvalidArg, "a: %w", full), status.Details{Reason: "INVALID_ARGUMENT"}},
		{"a step already", status.At("outer", full), all},
		{"uncoded", io.EOF, status.Details{Reason: "INTERNAL"}},
		{"cancelled", context.Canceled, status.Details{Reason: "CANCELLED"}},
		{"an execution", status.At("m", io.EOF), status.Details{Reason: status.StepFailed, Own: true, Step: "m"}},
		{"input of a step", status.At("m", status.Errorf(status.InvalidArg, "x")), status.Details{Reason: "INVALID_ARGUMENT", Own: true, Step: "m"}},
		{"of another server", status.At("m", &status.Error{Code: status.Unavailable, Step: "/far"}), status.Details{Reason: "UNAVAILABLE", Own: true, Retryable: true, Step: "m/far"}},
		{"final", status.With(status.RequestCrashes, full), status.Details{Reason: status.RequestCrashes, Own: true, Step: "detect", Finish: time.Minute}},
		{"by the code", status.Errorf(status.Unavailable, "x"), status.Details{Reason: "UNAVAILABLE", Own: true, Retryable: true}},
		{"not known", status.With("NEWER", status.Errorf(status.Unavailable, "x")), status.Details{Reason: "NEWER", Own: true, Retryable: true}},
		{"over its share", status.Reasonf(status.OverShare, "x"), status.Details{Reason: status.OverShare, Own: true, Retryable: true}},
	} {
		if diff := cmp.Diff(tt.want, status.DetailsOf(tt.err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if d := status.DetailsOf(&status.Error{Code: status.Unavailable, Step: "/far"}); d.Step != "far" {
		t.Errorf("outside of an ensemble, the step of another server is %q", d.Step)
	}
	for text, want := range map[string]status.Reason{
		"QUEUE_FULL": status.QueueFull, "NEWER_2": "NEWER_2", "": "", "X\r\nSet-Cookie: a=b": "", "lower": "", strings.Repeat("A", 64): "", "\u00c4": "",
	} {
		if got := status.ParseReason(text); got != want {
			t.Errorf("%q is the reason %q, want %q", text, got, want)
		}
	}
	if err := status.At("m", status.ErrDeadline); err.Error() != status.ErrDeadline.Error() || status.ReasonOf(err) != status.DeadlineExpired || status.Retryable(err) {
		t.Errorf("at a step, an expired deadline is %v, %+v", err, status.DetailsOf(err))
	}
}
