package checkin

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// headRoom is the space for the header lines of an answer.
const headRoom = 256

// notKept are the headers of an answer that encode writes itself.
var notKept = map[string]bool{"Content-Type": true, "Content-Length": true, "Connection": true, "Date": true}

// headerLines returns the headers that handlers have set, such as the request's id, which
// are stored while the poll is parked.
func headerLines(h http.Header) string {
	var b strings.Builder
	_ = h.WriteSubset(&b, notKept) // a Builder returns no error
	return b.String()
}

// encode returns the bytes of the answer, with the headers that net/http would send, so
// that a client does not see whether its poll was parked.
func encode(c *parkedConn, a Answer) []byte {
	b := make([]byte, 0, headRoom+len(c.head)+len(a.Body))
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.Status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(a.Status)...)
	b = append(b, "\r\nContent-Type: application/json\r\n"...)
	b = append(b, c.head...)
	b = append(b, "Date: "...)
	b = time.Now().UTC().AppendFormat(b, http.TimeFormat)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(a.Body)), 10)
	if c.last {
		b = append(b, "\r\nConnection: close"...)
	}
	b = append(b, "\r\n\r\n"...)
	return append(b, a.Body...)
}
