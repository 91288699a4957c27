package cloud

import (
	"regexp"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// address is the parsed address of a repository in a bucket.
type address struct {
	text, scheme string
	// endpoint is the URL of an S3 server other than Amazon's. Optional.
	endpoint string
	// account is the Azure storage account.
	account string
	bucket  string
	folder  string // in the bucket, without leading and trailing slashes
}

var (
	// s3Endpoint matches an address with the host and port of a server. For example,
	// s3://localhost:9000/bucket/models.
	s3Endpoint = regexp.MustCompile(`^s3://(http://|https://|)([0-9a-zA-Z\-.]+):([0-9]+)/(.*)$`)
	azureForm  = regexp.MustCompile(`^as://([^/]+)/([^/?]+)(?:/([^?]*))?(\?.*)?$`)
)

// parse reads an address in one of Triton's forms.
func parse(text string) (address, error) {
	a := address{text: text}
	a.scheme, _, _ = strings.Cut(text, "://")
	rest := strings.TrimPrefix(text, a.scheme+"://")
	switch a.scheme {
	case "s3":
		if m := s3Endpoint.FindStringSubmatch(text); m != nil {
			protocol := m[1]
			if protocol == "" {
				protocol = "https://"
			}
			a.endpoint, rest = protocol+m[2]+":"+m[3], m[4]
		}
		a.bucket, a.folder, _ = strings.Cut(clean(rest), "/")
	case "gs":
		a.bucket, a.folder, _ = strings.Cut(clean(rest), "/")
	case "as":
		m := azureForm.FindStringSubmatch(text)
		if m == nil {
			return a, status.Errorf(status.InvalidArg, "'%s' is no address of a container, expected as://ACCOUNT/CONTAINER/PATH", text)
		}
		a.account, a.bucket, a.folder = m[1], m[2], clean(m[3])
	default:
		return a, status.Errorf(status.Unsupported, "unsupported: '%s' has an unknown scheme, expected s3://, gs:// or as://", text)
	}
	if a.bucket == "" {
		return a, status.Errorf(status.InvalidArg, "'%s' names no bucket, expected %s://BUCKET/PATH", text, a.scheme)
	}
	return a, nil
}

// clean removes redundant slashes.
func clean(path string) string {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	return strings.Join(parts, "/")
}
