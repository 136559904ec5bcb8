package limit

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// measured is how many handshakes are tried. The first ones find cold caches, and a
// busy machine disturbs some, so the fastest counts.
const measured = 8

// MeasureHandshake returns the processor time of one handshake on the server's side,
// with the certificate of config, from some in memory. 0 if one fails: config may
// require more of a client than this one has.
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
			theirs.Close() // nobody reads an alert of the server
			failed <- err
		}()
		err := tls.Server(ours, config).HandshakeContext(context.Background())
		ours.Close() // nor one of the client
		if theirErr := <-failed; err != nil || theirErr != nil {
			return 0
		}
		fastest = min(fastest, time.Since(start))
	}
	return fastest / 2 // the client has about half of the work
}
