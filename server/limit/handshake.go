package limit

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// measured is how many handshakes are tried. The first ones find cold caches, and
// any may be disturbed, so the fastest counts.
const measured = 4

// MeasureHandshake gives the processor time of one handshake on the server's
// side, with the certificate of config, by doing some in memory. 0 if none
// succeeds: config may want more of a client than this one has.
func MeasureHandshake(config *tls.Config) time.Duration {
	config = config.Clone()
	config.SessionTicketsDisabled = true
	var fastest time.Duration
	for range measured {
		if took := handshakeOnce(config); took > 0 && (fastest == 0 || took < fastest) {
			fastest = took
		}
	}
	return fastest
}

func handshakeOnce(config *tls.Config) time.Duration {
	theirs, ours := net.Pipe()
	defer ours.Close()
	server := tls.Server(ours, config)
	client := tls.Client(theirs, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: config.NextProtos,
		InsecureSkipVerify: true, //nolint:gosec // it speaks to itself
	})
	failed := make(chan error, 1)
	start, used := time.Now(), processorTime()
	go func() { failed <- server.HandshakeContext(context.Background()) }()
	err := client.HandshakeContext(context.Background())
	theirs.Close() // what the server has to say now, an alert, nobody reads
	if theirErr := <-failed; err != nil || theirErr != nil {
		return 0
	}
	took := time.Since(start)
	// On a busy machine the clock runs on while others compute; the process's own
	// time grows for what else it does.
	if used = processorTime() - used; used > 0 {
		took = min(took, used)
	}
	return took / 2 // the client has about half of the work
}
