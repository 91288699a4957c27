package cloud

import (
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // it is what buckets tell of their objects
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// bucketS3 is a folder in an S3 bucket.
type bucketS3 struct {
	address
	client *s3.Client
}

// openS3 uses keys from the credential file, else the default chain of AWS: the environment, the shared files with
// AWS_PROFILE, the machine. Another server than Amazon's is accessed anonymously if there are no keys.
func openS3(ctx context.Context, a address, file *credentialFile, o *Options) (driver, error) {
	keys, _ := longestPrefix(file.S3, a.text)
	options := []func(*config.LoadOptions) error{config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(setTimeouts))}
	if keys.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(keys.Profile))
	}
	if keys.ID != "" {
		options = append(options, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(keys.ID, keys.Secret, keys.Token)))
	}
	if region := cmp.Or(keys.Region, o.Env("AWS_DEFAULT_REGION")); region != "" { // the library reads AWS_REGION itself
		options = append(options, config.WithRegion(region))
	}
	settings, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, failed(a.text, "opening", 0, err)
	}
	settings.Region = cmp.Or(settings.Region, "us-east-1") // a region is required; Amazon redirects to the right one
	anonymous := a.endpoint != "" && keys.ID == "" && keys.Profile == "" && o.Env("AWS_ACCESS_KEY_ID") == "" && o.Env("AWS_PROFILE") == ""
	client := s3.NewFromConfig(settings, func(so *s3.Options) {
		if a.endpoint != "" {
			so.BaseEndpoint, so.UsePathStyle = aws.String(a.endpoint), true
		}
		if anonymous {
			so.Credentials = aws.AnonymousCredentials{}
		}
		// Other servers than Amazon's do not support the newer checksums.
		so.RequestChecksumCalculation, so.ResponseChecksumValidation = aws.RequestChecksumCalculationWhenRequired, aws.ResponseChecksumValidationWhenRequired
		so.DisableLogOutputChecksumValidationSkipped = true
	})
	return &bucketS3{address: a, client: client}, nil
}

// fail maps a library error to its HTTP status, without the library's description of its layers.
func (b *bucketS3) fail(what string, err error) error {
	var answer interface{ HTTPStatusCode() int }
	code := 0
	if errors.As(err, &answer) {
		code = answer.HTTPStatusCode()
	}
	var api interface {
		ErrorCode() string
		ErrorMessage() string
	}
	if errors.As(err, &api) {
		err = fmt.Errorf("%s %s", api.ErrorCode(), api.ErrorMessage())
	}
	return failed(b.text, what, code, err)
}

// List implements Bucket.
func (b *bucketS3) List(ctx context.Context, prefix string) ([]Object, error) {
	return listAll(ctx, b, b.text, prefix)
}

// pages implements lister.
func (b *bucketS3) pages(ctx context.Context, prefix string, yield func([]Object) bool) error {
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.bucket, Prefix: aws.String(join(b.folder, prefix))})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return b.fail("listing", err)
		}
		var list []Object
		for _, o := range page.Contents {
			key := relativeKey(b.folder, aws.ToString(o.Key))
			if key == "" {
				continue
			}
			tag := strings.Trim(aws.ToString(o.ETag), `"`)
			sum, err := hex.DecodeString(tag) // the ETag of a multipart or encrypted object is no MD5
			if err != nil || len(sum) != md5.Size {
				sum = nil
			}
			list = append(list, Object{Key: key, Size: aws.ToInt64(o.Size), Tag: tag, MD5: sum})
		}
		if !yield(list) {
			return nil
		}
	}
	return nil
}

// Read implements Bucket.
func (b *bucketS3) Read(ctx context.Context, o Object, offset int64) (io.ReadCloser, error) {
	return b.readRange(ctx, o, offset, -1)
}

// readRange implements ranger.
func (b *bucketS3) readRange(ctx context.Context, o Object, offset, n int64) (io.ReadCloser, error) {
	in := &s3.GetObjectInput{Bucket: &b.bucket, Key: aws.String(join(b.folder, o.Key)), IfMatch: aws.String(`"` + o.Tag + `"`)}
	if offset > 0 || n >= 0 {
		in.Range = aws.String(byteRange(offset, n))
	}
	out, err := b.client.GetObject(ctx, in)
	if err != nil {
		err = b.fail("reading '"+o.Key+"' of", err)
		if strings.Contains(err.Error(), http.StatusText(http.StatusPreconditionFailed)) {
			return nil, changed(o)
		}
		return nil, err
	}
	if tag := strings.Trim(aws.ToString(out.ETag), `"`); tag != "" && tag != o.Tag { // a server may not know conditions
		return nil, errors.Join(changed(o), out.Body.Close())
	}
	if out.SSEKMSKeyId != nil || out.SSECustomerAlgorithm != nil || strings.HasPrefix(string(out.ServerSideEncryption), "aws:") {
		return withoutSum{out.Body}, nil // the ETag looks like an MD5, but is none
	}
	return out.Body, nil
}

// Write implements Bucket.
func (b *bucketS3) Write(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &b.bucket, Key: aws.String(join(b.folder, key)), Body: body, ContentLength: &size})
	if err != nil {
		return b.fail("writing '"+key+"' to", err)
	}
	return nil
}

// Delete implements Bucket.
func (b *bucketS3) Delete(ctx context.Context, key string) error {
	if _, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.bucket, Key: aws.String(join(b.folder, key))}); err != nil {
		return b.fail("deleting '"+key+"' of", err)
	}
	return nil
}
