package httpapi

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"
)

const (
	// resetBurst is how many requests of one HTTP/2 connection may be reset at once: all
	// that net/http lets it have open, as a proxy does when it restarts.
	resetBurst = 250
	// resetsPerSecond is how many may be reset in each second after that. A browser resets
	// one for each key that somebody types into a search.
	resetsPerSecond = 50
)

type resetsKey struct{}

// resets counts the requests of one connection that its client has reset.
type resets struct {
	conn net.Conn
	pace *rate.Limiter
	cut  atomic.Bool // the connection was closed for them
}

// ConnContext is for http.Server, for connections that may speak HTTP/2. A client that
// begins requests and resets them, without waiting for answers, evades net/http's limit of
// concurrent requests while the server works on them; such a connection is closed.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, resetsKey{}, &resets{conn: c, pace: rate.NewLimiter(resetsPerSecond, resetBurst)})
}

// cutOffResets closes the connection of a request that was reset, if it resets too many. The
// requests of it that net/http has queued by then are not handled.
func (a API) cutOffResets(c *gin.Context) {
	ctx := c.Request.Context()
	r, ok := ctx.Value(resetsKey{}).(*resets)
	if !ok || c.Request.ProtoMajor != 2 {
		return
	}
	if r.cut.Load() {
		c.Abort()
		return
	}
	c.Next()
	if ctx.Err() != nil && !r.pace.Allow() && r.cut.CompareAndSwap(false, true) {
		a.Log.Debug("connection closed: it resets its requests", "from", c.Request.RemoteAddr)
		r.conn.Close()
	}
}
