package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// Limits of an ordinary request, as in Fleet Server. Handlers that need longer (a long
// poll, a package, the event stream) set their own.
const (
	// readTimeout bounds the whole request: a slow link sends 1 MiB in a minute.
	readTimeout = time.Minute
	// writeTimeout bounds the response: the longest list, of 10,000 agents, over the same
	// link.
	writeTimeout = 10 * time.Minute
)

// NewServer returns an http.Server with the limits of both listeners.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout, // net/http removes it once the body has been read
		WriteTimeout:      writeTimeout,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    16 << 10, // twice what an agent sends at most
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
