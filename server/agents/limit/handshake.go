package limit

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// measured is how many handshakes are measured. The first ones run with cold caches, and
// a busy machine delays some, so the fastest counts.
const measured = 8

// MeasureHandshake returns the server's CPU time of one handshake with the certificate of
// config. It makes handshakes with itself in memory. It returns 0 if one fails: config may
// require a client certificate.
func MeasureHandshake(config *tls.Config) time.Duration {
	config = config.Clone()
	config.SessionTicketsDisabled = true
	fastest := time.Hour
	for range measured {
		theirs, ours := net.Pipe()
		client := tls.Client(theirs, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) //nolint:gosec // it connects to itself
		failed := make(chan error, 1)
		start := time.Now()
		go func() {
			err := client.HandshakeContext(context.Background())
			theirs.Close() // so that an alert cannot block the server
			failed <- err
		}()
		err := tls.Server(ours, config).HandshakeContext(context.Background())
		ours.Close() // nor the client
		if theirErr := <-failed; err != nil || theirErr != nil {
			return 0
		}
		fastest = min(fastest, time.Since(start))
	}
	return fastest / 2 // about half of the time is the client's
}
