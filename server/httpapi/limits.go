package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// Limits of an ordinary request, Fleet Server's figures. Handlers that take
// longer by nature (a long poll, a package, the event stream) set their own.
const (
	// readTimeout is for the whole request: a slow link sends 1 MiB in a minute.
	readTimeout = time.Minute
	// writeTimeout is for the answer: the longest list, of 10,000 agents, over
	// the same link.
	writeTimeout = 10 * time.Minute
)

// NewServer makes an http.Server with the limits both listeners share.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout, // net/http takes it off when the body has been read
		WriteTimeout:      writeTimeout,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    16 << 10, // an agent's headers fit 8 KiB twice over
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
