package admin

import (
	"mime"
	"net/http"
	"slices"

	"github.com/klauspost/compress/gzhttp"
)

// compressAbove is the size above which answers are compressed: a smaller one fits into one
// packet with its headers.
const compressAbove = 1 << 10

// compressible are the types of answers that are worth it. Not among them are the event stream,
// of which each event must be sent at once, and packages, which are compressed.
var compressible = []string{"application/json", "application/yaml", "text/csv", "text/plain", "text/html", "text/css", "text/javascript", "image/svg+xml"}

// compressed compresses answers with gzip for clients that accept it. Those that have an
// encoding already, such as the files of the UI, stay as they are.
func compressed(h http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(compressAbove), gzhttp.EnableZstd(false), gzhttp.ContentTypeFilter(func(contentType string) bool {
		base, _, err := mime.ParseMediaType(contentType)
		return err == nil && slices.Contains(compressible, base)
	}))
	if err != nil {
		panic("compress answers: " + err.Error()) // the options are constants
	}
	return wrap(h)
}
