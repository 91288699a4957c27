package http1_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/server/http1"
)

// chunked is a POST with a chunked body as given.
func chunked(body string) string {
	return "POST /sized HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + body
}

// withFields is a POST with two bytes of body and the given header lines.
func withFields(lines string) string {
	return "POST /sized HTTP/1.1\r\nHost: h\r\n" + lines + "\r\nhi"
}

// smuggled is a request that an attacker hides in the body of another one. No server here may respond to it.
const smuggled = "GET /smuggled HTTP/1.1\r\nHost: evil\r\n\r\n"

// framings are the requests of the security fixes and framing bugs published for net/http and fasthttp since 2020, and their
// close variants. Left out are those that a server cannot meet over HTTP/1: CVE-2020-24553, CVE-2022-32148, CVE-2023-45289,
// CVE-2024-45336, CVE-2025-4673 (clients and proxies), CVE-2022-27664, CVE-2022-41717, CVE-2022-41723, CVE-2023-39325,
// CVE-2023-44487, CVE-2023-45288 (HTTP/2), CVE-2021-44716 (the cache of HTTP/2 header names).
var framings = map[string]string{
	// CVE-2015-5739 again, go.dev/issue/53035: spaces are no hyphens.
	"space for hyphen in Content-Length":    withFields("Content Length: 2\r\n"),
	"space for hyphen in Transfer-Encoding": withFields("Content-Length: 2\r\nTransfer Encoding: chunked\r\n"),
	// CVE-2019-16276, go.dev/issue/34540; fasthttp pull 2187: blanks before the colon.
	"space before colon of Transfer-Encoding": withFields("Content-Length: 2\r\nTransfer-Encoding : chunked\r\n"),
	"space before colon of Content-Length":    withFields("Content-Length : 2\r\n"),
	"tab before colon of Content-Length":      withFields("Content-Length\t: 2\r\n"),
	"space before colon of Host":              "GET /sized HTTP/1.1\r\nHost : h\r\n\r\n",
	// CVE-2020-15586, CVE-2024-24791, go.dev/issue/67555: Expect: 100-continue, with the body read, unread, and absent.
	"expect, body read":          withFields("Content-Length: 2\r\nExpect: 100-continue\r\n"),
	"expect, body unread":        "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi",
	"expect, body is a request":  "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 38\r\nExpect: 100-continue\r\n\r\n" + smuggled,
	"expect, no body":            "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n",
	"expect something else":      withFields("Content-Length: 2\r\nExpect: 200-ok\r\n"),
	"expect, in HTTP/1.0":        "POST /sized HTTP/1.0\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi",
	"expect, then chunked":       "POST /sized HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
	"expect twice":               withFields("Content-Length: 2\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n"),
	"expect, upper case":         withFields("Content-Length: 2\r\nEXPECT: 100-CONTINUE\r\n"),
	"expect, response is longer": "POST /long HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi",
	// CVE-2021-31525, go.dev/issue/45710: long lists of tokens in a header.
	"long Connection": withFields("Content-Length: 2\r\nConnection: " + strings.Repeat("a,", 3000) + "close\r\n"),
	// CVE-2021-33197, go.dev/issue/46313: several Connection fields, the first one empty.
	"empty Connection first":        "GET /sized HTTP/1.1\r\nHost: h\r\nConnection: \r\nConnection: X-Secret\r\nX-Secret: s\r\n\r\n",
	"Connection names a field":      "GET /sized HTTP/1.1\r\nHost: h\r\nConnection: X-Secret\r\nX-Secret: s\r\n\r\n",
	"Connection twice":              "GET /sized HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
	"Connection twice, first close": "GET /sized HTTP/1.1\r\nHost: h\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n",
	"Connection list":               "GET /sized HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, close\r\n\r\n",
	// CVE-2022-1705, go.dev/issue/53188: white space and control characters around "chunked".
	"CR before chunked":          withFields("Content-Length: 2\r\nTransfer-Encoding: \rchunked\r\n"),
	"CR after chunked":           withFields("Content-Length: 2\r\nTransfer-Encoding: chunked\r\r\n"),
	"tab before chunked":         withFields("Content-Length: 2\r\nTransfer-Encoding:\tchunked\r\n"),
	"vertical tab and chunked":   withFields("Content-Length: 2\r\nTransfer-Encoding: \vchunked\r\n"),
	"no-break space and chunked": withFields("Content-Length: 2\r\nTransfer-Encoding: \xc2\xa0chunked\r\n"),
	"NUL after chunked":          withFields("Content-Length: 2\r\nTransfer-Encoding: chunked\x00\r\n"),
	// go.dev/issue/38867 and the release notes of Go 1.15 (identity is no encoding); also fasthttp pull 2190.
	"identity":                     withFields("Content-Length: 2\r\nTransfer-Encoding: identity\r\n"),
	"identity, chunked":            withFields("Content-Length: 2\r\nTransfer-Encoding: identity, chunked\r\n"),
	"gzip, chunked":                withFields("Content-Length: 2\r\nTransfer-Encoding: gzip, chunked\r\n"),
	"chunked twice":                withFields("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
	"chunked in a list twice":      withFields("Transfer-Encoding: chunked, chunked\r\n"),
	"chunked, then another":        withFields("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n"),
	"empty Transfer-Encoding":      withFields("Content-Length: 2\r\nTransfer-Encoding: \r\n"),
	"quoted chunked":               withFields("Content-Length: 2\r\nTransfer-Encoding: \"chunked\"\r\n"),
	"unknown encoding":             withFields("Content-Length: 2\r\nTransfer-Encoding: xchunked\r\n"),
	"chunked in HTTP/1.0":          "POST /sized HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
	"chunked GET":                  "GET /sized HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
	"upper case CHUNKED":           "POST /sized HTTP/1.1\r\nHost: h\r\nTRANSFER-ENCODING: CHUNKED\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
	"folded Transfer-Encoding":     withFields("Content-Length: 2\r\nTransfer-Encoding:\r\n chunked\r\n"),
	"Transfer-Encoding underscore": withFields("Content-Length: 2\r\nTransfer_Encoding: chunked\r\n"),
	// CVE-2022-2880: queries that parsers read differently.
	"query with a semicolon":  "GET /sized?a=1;b=2 HTTP/1.1\r\nHost: h\r\n\r\n",
	"query that cannot parse": "GET /sized?a=%zz HTTP/1.1\r\nHost: h\r\n\r\n",
	// CVE-2022-41721, go.dev/issue/56352: an upgrade to HTTP/2 with a body that holds frames.
	"upgrade to h2c with a body": "POST /unread HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" +
		"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: 24\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"upgrade without Connection": withFields("Content-Length: 2\r\nUpgrade: websocket\r\n"),
	"HTTP/2 preface":             "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	// CVE-2023-24534, go.dev/issue/58975: many small header lines.
	"many header lines":     "GET /sized HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("a:\r\n", 2000) + "\r\n",
	"many distinct headers": "GET /sized HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("X-A: b\r\nX-B: c\r\nX-C: d\r\n", 15) + "\r\n",
	// CVE-2023-29406, go.dev/issue/60374: the Host field.
	"Host with a path":          "GET /sized HTTP/1.1\r\nHost: h/../i\r\n\r\n",
	"Host with a space":         "GET /sized HTTP/1.1\r\nHost: h i\r\n\r\n",
	"Host with a CR":            "GET /sized HTTP/1.1\r\nHost: h\ri\r\n\r\n",
	"Host with user info":       "GET /sized HTTP/1.1\r\nHost: u@h\r\n\r\n",
	"Host with an odd port":     "GET /sized HTTP/1.1\r\nHost: h:x\r\n\r\n",
	"Host with several colons":  "GET /sized HTTP/1.1\r\nHost: h:1:2\r\n\r\n",
	"Host that is a list":       "GET /sized HTTP/1.1\r\nHost: h, i\r\n\r\n",
	"Host and an absolute path": "GET http://i/sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"no Host in HTTP/1.0":       "GET /sized HTTP/1.0\r\n\r\n",
	// go.dev/issue/77798: an empty Host.
	"empty Host":             "GET /sized HTTP/1.1\r\nHost:\r\n\r\n",
	"Host of blanks":         "GET /sized HTTP/1.1\r\nHost: \t \r\n\r\n",
	"empty Host and another": "GET /sized HTTP/1.1\r\nHost:\r\nHost: h\r\n\r\n",
	// CVE-2023-39326, go.dev/issue/64433: long chunk extensions.
	"chunk extension":         chunked("2;a=b\r\nhi\r\n0\r\n\r\n"),
	"long chunk extension":    chunked("2;" + strings.Repeat("a", 5000) + "\r\nhi\r\n0\r\n\r\n"),
	"many chunk extensions":   chunked(strings.Repeat("1;"+strings.Repeat("a", 500)+"\r\nx\r\n", 60) + "0\r\n\r\n"),
	"quoted chunk extension":  chunked("2;a=\"\r\nx\"\r\nhi\r\n0\r\n\r\n"),
	"blank after chunk size":  chunked("2 \r\nhi\r\n0\r\n\r\n"),
	"blank before chunk size": chunked(" 2\r\nhi\r\n0\r\n\r\n"),
	// CVE-2025-22871, go.dev/issue/71988; fasthttp pull 1899: line feeds in the line of a chunk's size.
	"LF ends chunk size":        chunked("2\nhi\r\n0\r\n\r\n"),
	"LF in chunk extension":     chunked("2;\nxx\r\n" + "hi\r\n0\r\n\r\n"),
	"CR in chunk extension":     chunked("2;\rx\r\nhi\r\n0\r\n\r\n"),
	"LF ends chunk data":        chunked("2\r\nhi\n0\r\n\r\n"),
	"CR ends chunk size":        chunked("2\rhi\r\n0\r\n\r\n"),
	"LF ends last chunk":        chunked("2\r\nhi\r\n0\n\r\n"),
	"request in chunk ext":      chunked("2;\n" + smuggled + "hi\r\n0\r\n\r\n"),
	"LF ends the trailer":       chunked("2\r\nhi\r\n0\r\nX: y\n\r\n"),
	"LF ends the whole message": chunked("2\r\nhi\r\n0\r\n\n"),
	// go.dev/issue/64517: an empty line does not end a chunked body.
	"empty line ends chunks":    chunked("2\r\nhi\r\n\r\n\r\n") + smuggled,
	"empty line before chunks":  chunked("\r\n2\r\nhi\r\n0\r\n\r\n"),
	"chunk size is empty":       chunked(";x\r\nhi\r\n0\r\n\r\n"),
	"data longer than chunk":    chunked("2\r\nhij\r\n0\r\n\r\n"),
	"data shorter than chunk":   chunked("4\r\nhi\r\n0\r\n\r\n"),
	"chunk size in hexadecimal": chunked("0x2\r\nhi\r\n0\r\n\r\n"),
	"chunk size with a sign":    chunked("+2\r\nhi\r\n0\r\n\r\n"),
	"chunk size is negative":    chunked("-2\r\nhi\r\n0\r\n\r\n"),
	"chunk size with zeros":     chunked(strings.Repeat("0", 15) + "2\r\nhi\r\n0\r\n\r\n"),
	"chunk size overflows":      chunked("10000000000000002\r\nhi\r\n0\r\n\r\n"),
	"chunk size underscores":    chunked("0_2\r\nhi\r\n0\r\n\r\n"),
	"last chunk of zeros":       chunked("2\r\nhi\r\n000\r\n\r\n"),
	"no last chunk":             chunked("2\r\nhi\r\n"),
	// Trailers must not change the framing (RFC 9112, 7.1.2).
	"trailer Content-Length":    chunked("2\r\nhi\r\n0\r\nContent-Length: 40\r\n\r\n"),
	"trailer Transfer-Encoding": chunked("2\r\nhi\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
	"trailer announced":         "POST /sized HTTP/1.1\r\nHost: h\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n\r\n",
	"trailer forbidden":         "POST /sized HTTP/1.1\r\nHost: h\r\nTrailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
	"trailer malformed":         chunked("2\r\nhi\r\n0\r\nX y\r\n\r\n"),
	"Trailer without chunks":    withFields("Content-Length: 2\r\nTrailer: X\r\n"),
	// go.dev/issue/65505; fasthttp pull 2190: Content-Length beside Transfer-Encoding.
	"CL.TE":                       "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 45\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /second HTTP/1.1\r\nHost: h\r\n\r\n",
	"TE.CL":                       "POST /sized HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n26\r\n" + smuggled + "\r\n0\r\n\r\n",
	"bad Content-Length, chunked": "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: blah\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"two Content-Length, chunked": "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	// go.dev/issue/61679: an empty Content-Length.
	"empty Content-Length":     withFields("Content-Length:\r\n"),
	"blank Content-Length":     withFields("Content-Length: \t\r\n"),
	"empty, then Length":       withFields("Content-Length:\r\nContent-Length: 2\r\n"),
	"Content-Length of a list": withFields("Content-Length: 2, 2\r\n"),
	"Length with a sign":       withFields("Content-Length: -2\r\n"),
	"Length with a plus":       withFields("Content-Length: +2\r\n"),
	"Length in hexadecimal":    withFields("Content-Length: 0x2\r\n"),
	"Length with zeros":        withFields("Content-Length: 002\r\n"),
	"Length of many zeros":     withFields("Content-Length: " + strings.Repeat("0", 40) + "2\r\n"),
	"Length with a point":      withFields("Content-Length: 2.0\r\n"),
	"Length with an exponent":  withFields("Content-Length: 2e0\r\n"),
	"Length with underscores":  withFields("Content-Length: 0_2\r\n"),
	"Length with a NUL":        withFields("Content-Length: 2\x00\r\n"),
	"Length with a CR":         withFields("Content-Length: \r2\r\n"),
	"Length in other digits":   withFields("Content-Length: \xd9\xa2\r\n"),
	"Length at its maximum":    "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 9223372036854775807\r\n\r\nhi",
	"Length beyond it":         withFields("Content-Length: 9223372036854775808\r\n"),
	"Length that wraps around": withFields("Content-Length: 18446744073709551618\r\n"),
	"Length folded":            withFields("Content-Length:\r\n 2\r\n"),
	// fasthttp issues 1785, 1794 and 1974: control characters in names and values, and a first line that is folded.
	"CR in a name":           "GET /sized HTTP/1.1\r\nHost: h\r\n\rtest: test\r\n\r\n",
	"CR in a value":          "GET /sized HTTP/1.1\r\nHost: h\r\ntest: te\rst\r\n\r\n",
	"NUL in a value":         "GET /sized HTTP/1.1\r\nHost: h\r\ntest: te\x00st\r\n\r\n",
	"NUL in a name":          "GET /sized HTTP/1.1\r\nHost: h\r\nte\x00st: x\r\n\r\n",
	"folded first line":      "GET /sized HTTP/1.1\r\n  Test: x\r\nHost: h\r\n\r\n",
	"tab before first name":  "GET /sized HTTP/1.1\r\n\tTest: x\r\nHost: h\r\n\r\n",
	"delimiters in a name":   "GET /sized HTTP/1.1\r\nHost: h\r\n(x): y\r\n\r\n",
	"high byte in a name":    "GET /sized HTTP/1.1\r\nHost: h\r\nX\xff: y\r\n\r\n",
	"line without a colon":   "GET /sized HTTP/1.1\r\nHost: h\r\nX\r\n\r\n",
	"delete in a value":      "GET /sized HTTP/1.1\r\nHost: h\r\nX: \x7f\r\n\r\n",
	"LF inside the header":   "GET /sized HTTP/1.1\r\nHost: h\nX: y\r\n\r\n",
	"LF ends the header":     "GET /sized HTTP/1.1\r\nHost: h\r\n\n",
	"CR ends a line":         "GET /sized HTTP/1.1\r\nHost: h\rX: y\r\n\r\n",
	"header ends in CR CR":   "GET /sized HTTP/1.1\r\nHost: h\r\r\n\r\n",
	"empty line, then a LF":  "GET /sized HTTP/1.1\r\nHost: h\r\n\r\n\n",
	"empty lines before":     "\r\n\r\nGET /sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"empty line after POST":  withFields("Content-Length: 2\r\n") + "\r\n",
	"empty lines after POST": withFields("Content-Length: 2\r\n") + "\r\n\r\n\r\n",
	"space after POST":       withFields("Content-Length: 2\r\n") + " ",
	// The request line (RFC 9112, 3): every reader must find the same method, path and version.
	"two spaces after method":      "GET  /sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"tab after method":             "GET\t/sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"two spaces after path":        "GET /sized  HTTP/1.1\r\nHost: h\r\n\r\n",
	"blank after version":          "GET /sized HTTP/1.1 \r\nHost: h\r\n\r\n",
	"version with more digits":     "GET /sized HTTP/1.10\r\nHost: h\r\n\r\n",
	"version with a zero":          "GET /sized HTTP/01.1\r\nHost: h\r\n\r\n",
	"version 1.2":                  "GET /sized HTTP/1.2\r\nHost: h\r\n\r\n",
	"version in lower case":        "GET /sized http/1.1\r\nHost: h\r\n\r\n",
	"no version":                   "GET /sized\r\nHost: h\r\n\r\n",
	"method in lower case":         "get /sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"blank before method":          " GET /sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"NUL in the path":              "GET /si\x00zed HTTP/1.1\r\nHost: h\r\n\r\n",
	"CR in the path":               "GET /si\rzed HTTP/1.1\r\nHost: h\r\n\r\n",
	"version in the path":          "GET /sized HTTP/1.1 HTTP/1.1\r\nHost: h\r\n\r\n",
	"backslashes (CVE-2022-21221)": "GET /..\\..\\sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"escaped backslashes":          "GET /..%5c..%5csized HTTP/1.1\r\nHost: h\r\n\r\n",
	"dots in the path":             "GET /a/../sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"fragment in the path":         "GET /sized#x HTTP/1.1\r\nHost: h\r\n\r\n",
	"path of an asterisk":          "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
	"path is an authority":         "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n",
	// Bodies that hold a request: the body must not be taken for one.
	"body is a request":         "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 38\r\n\r\n" + smuggled,
	"GET with a request inside": "GET /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 38\r\n\r\n" + smuggled,
	"body is cut off, unread":   "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 3000\r\n\r\nhi",
	"late body is a request":    "POST /late HTTP/1.1\r\nHost: h\r\nContent-Length: 38\r\n\r\n" + smuggled,
	"request in a large body":   "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 300038\r\n\r\n" + strings.Repeat("z", 300_000) + smuggled,
	"HEAD, then a request":      "HEAD /long HTTP/1.1\r\nHost: h\r\n\r\n",
	// A response that is longer or shorter than its Content-Length ends the connection.
	"response too long at once": "GET /over/once HTTP/1.1\r\nHost: h\r\n\r\n",
	"response too long later":   "GET /over/later HTTP/1.1\r\nHost: h\r\n\r\n",
	"response too long, large":  "GET /over/large HTTP/1.1\r\nHost: h\r\n\r\n",
	"response too short":        "GET /under HTTP/1.1\r\nHost: h\r\n\r\n",
	"response without its body": "GET /under/all HTTP/1.1\r\nHost: h\r\n\r\n",
}

// wrongLength writes a response whose body is not as long as its Content-Length. It is false for other paths.
func wrongLength(w http.ResponseWriter, path string) bool {
	parts := map[string][]string{
		"/over/once":  {"12345"},
		"/over/later": {"1234", "5"},
		"/over/large": {"12", strings.Repeat("3", 10_000), "45"},
		"/under":      {"12"},
		"/under/all":  {},
	}
	list, ok := parts[path]
	if ok {
		w.Header().Set("Content-Length", "4")
		w.WriteHeader(http.StatusOK)
	}
	for _, part := range list {
		_, _ = io.WriteString(w, part) // http.ErrContentLength is what the test is about
	}
	return ok
}

// TestFramings compares the responses, and which requests were understood at all, with those of net/http: alone, before a
// plain request, and after one on the same connection, whose head this package remembers.
func TestFramings(t *testing.T) {
	t.Parallel()
	here, there := start(t, http1.New(settings(mirror))), start(t, settings(mirror))
	plain := withFields("Content-Length: 2\r\n")
	for name, sent := range framings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, text := range []string{sent, sent + last, plain + sent + last, plain + plain + sent + sent + last} {
				want, got := talk(t, there, text), talk(t, here, text)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%.200q (-net/http +here):\n%s", text, diff)
				}
				for _, r := range got {
					if strings.HasPrefix(r.Body, "GET /smuggled") {
						t.Errorf("%.200q: the hidden request has a response: %+v", text, r)
					}
				}
			}
		})
	}
}

// TestWrongLengthCloses verifies that no request is served on a connection after a response of the wrong length.
func TestWrongLengthCloses(t *testing.T) {
	t.Parallel()
	addr := start(t, http1.New(settings(mirror)))
	for _, path := range []string{"/over/once", "/over/later", "/over/large", "/under", "/under/all"} {
		got := talk(t, addr, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n"+last)
		if len(got) != 1 || got[0].Length != 4 {
			t.Errorf("%s: got %+v, want one response with a Content-Length of 4", path, got)
		}
	}
}

// TestHeaderContract shows why handlers must not modify the request's header: equal heads have the same map. A different
// head, and a request served by net/http, have other ones.
func TestHeaderContract(t *testing.T) {
	t.Parallel()
	addr := start(t, http1.New(settings(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Join(r.Header["X-Seen"], ",")) // the client reads it
		r.Header["X-Seen"] = append(r.Header["X-Seen"], "modified")     // against the contract
	})))
	const plain, other, byStd = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", "GET /b HTTP/1.1\r\nHost: h\r\n\r\n", "GET /c?d HTTP/1.1\r\nHost: h\r\n\r\n"
	want := []string{"", "modified", "", "", ""}
	var got []string
	for _, r := range talk(t, addr, plain+plain+other+byStd+byStd) {
		got = append(got, r.Body)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("header seen (-want +got):\n%s", diff)
	}
}
