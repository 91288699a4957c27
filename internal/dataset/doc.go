// Package dataset reads the datasets of durable jobs and writes their results: files of rows, local or in a bucket.
//
// Open finds the files of a dataset and their format. Cut reads them once and cuts them into chunks; memory is flat in
// the number of rows. Read streams the rows of one chunk, on any machine. A Binder turns rows into the input tensors of a
// model, a Renderer turns output tensors into cells, and an Output writes parts with them.
//
//	set, err := dataset.Open(ctx, job.Place{URI: "s3://texts/2026/*.jsonl"}, nil)
//	columns, err := set.Columns(ctx)
//	binder, err := dataset.NewBinder(description, spec.Columns, columns)
//	set = set.Select(binder.Columns()...)
//	for chunk, err := range set.Cut(ctx, dataset.CutOptions{MaxRows: 1000}) { ... }
//	for row, err := range set.Read(ctx, chunk) { ... }
//
// # Formats
//
// A URI is a file, a folder with all that is below it, or a pattern: the last elements may have *, ? and [a-z]. Files and
// folders whose name starts with a dot or an underscore are skipped. The names of the files say the format, unless
// it is given. Files are read in the order of their names.
//
//   - jsonl (.jsonl, .ndjson; also .gz and .zst): a JSON object per line. A tensor is nested lists, {"x": [[1,2],[3,4]]}; a
//     string is an element of BYTES, as is {"b64": "/9j/"} for what is no text. NaN, Infinity and -Infinity are numbers.
//   - csv (.csv, .tsv; also .gz and .zst): a header and fields as in RFC 4180. A field has the type of the input that it is bound
//     to. A tensor is JSON text: "[[1,2],[3,4]]". An empty field is no value, except for BYTES: there it is an empty string.
//   - parquet (.parquet): integers, floats, booleans, strings, binary, and nested lists of them for tensors.
//   - npz (.npz, .npy): arrays of numpy, whose first axis are the rows. The name of an array is its column; a single .npy is the
//     column "data". Strings, objects, complex numbers and dates are refused.
//   - images (.jpg, .jpeg, .png, .gif, .bmp, .webp, .tif, .tiff): a file per row, with the columns image (the content) and path.
//   - texts (.txt, .text, .md, .html): a file per row, with the columns text and path.
package dataset
