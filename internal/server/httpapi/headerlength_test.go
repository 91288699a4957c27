package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestHeaderLength checks lengths of the JSON part that are no length of a part of the body.
func TestHeaderLength(t *testing.T) {
	t.Parallel()
	address, _ := listen(t)
	for _, length := range []string{
		"-1", "-2147483648", "2147483647", "2147483648", "4294967296", "9223372036854775807", "18446744073709551616", "99999999999999999999999",
		"1e3", "0x10", " ", "five", "5,5", "1000000",
	} {
		c := dial(t, address)
		c.send(infers("echo", lengthHeader+": "+length+"\r\n", goodInput) + infers("echo", "", goodInput))
		code, body, _ := c.response()
		if code != http.StatusBadRequest || !strings.Contains(body, `{"error":"`) || strings.Contains(body, `"error":""`) {
			t.Errorf("%q: status %d, %s; want 400 and why", length, code, body)
		}
		if code, body, _ := c.response(); code != http.StatusOK || body != goodAnswer {
			t.Errorf("after %q: status %d, %s", length, code, body)
		}
	}
}
