// Package cloud reads and writes objects in buckets: s3:// (Amazon and compatible servers), gs:// (Google) and as://
// (Azure). Open turns an address into a Bucket. The package does not cache: the repository stores downloads on disk.
//
// Files: bucket.go is the contract and Open, address.go parses addresses, credentials.go finds keys, s3.go, gcs.go and
// azure.go implement Bucket, copy.go downloads an object with ranged reads that resume after a broken connection.
package cloud
