package upgrade

import (
	"sync"
	"time"
)

// lock is a mutex that may be held for as long as a download takes. It is a channel, since
// package testing/synctest lets no time pass while a goroutine waits for a sync.Mutex.
type lock struct {
	once sync.Once
	held chan struct{}
}

func (l *lock) channel() chan struct{} {
	l.once.Do(func() { l.held = make(chan struct{}, 1) })
	return l.held
}

func (l *lock) Lock()   { l.channel() <- struct{}{} }
func (l *lock) Unlock() { <-l.channel() }

// LockWithin locks l if that is possible within d.
func (l *lock) LockWithin(d time.Duration) bool {
	select {
	case l.channel() <- struct{}{}:
		return true
	case <-time.After(d):
		return false
	}
}

func (l *lock) TryLock() bool {
	select {
	case l.channel() <- struct{}{}:
		return true
	default:
		return false
	}
}
