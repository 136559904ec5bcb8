package download

import (
	"sync"
	"time"
)

// Progress is how far a download is.
type Progress struct {
	Percent        float64 // 0 to 100; 0 while the size is not known
	BytesPerSecond float64 // mean of the last RateWindow; 0 when nothing arrives
	// Retry is why the last attempts broke off, and RetryAt when the next
	// begins; zero while one is under way.
	Retry   string
	RetryAt time.Time
}

// window is the sliding mean of a rate. The zero value is not ready; see reset.
type window struct {
	total int64
	marks []mark // totals at earlier moments, oldest first; the first bounds the mean
}

type mark struct {
	at    time.Time
	total int64
}

// reset forgets what came before: a wait between two attempts is no slow link.
func (w *window) reset(now time.Time) { w.marks = []mark{{now, w.total}} }

// rate is in bytes per second. It is to be asked about every second.
func (w *window) rate(now time.Time) float64 {
	for len(w.marks) > 1 && now.Sub(w.marks[1].at) >= RateWindow {
		w.marks = w.marks[1:]
	}
	since := now.Sub(w.marks[0].at)
	came := w.total - w.marks[0].total
	w.marks = append(w.marks, mark{now, w.total})
	if since <= 0 {
		return 0
	}
	return float64(came) / since.Seconds()
}

func percent(have, size int64) float64 {
	if size <= 0 {
		return 0
	}
	return min(100, 100*float64(have)/float64(size))
}

// meter reports about every second, by a goroutine of its own: a report must come
// also when nothing arrives.
type meter struct {
	report func(Progress)
	// saying is held while report runs, so that reports keep their order.
	saying sync.Mutex

	mu         sync.Mutex
	window     window
	have, size int64
	waiting    bool

	quit chan struct{}
	done sync.WaitGroup
}

func startMeter(report func(Progress), size int64) *meter {
	m := &meter{report: report, size: size, quit: make(chan struct{})}
	m.window.reset(time.Now())
	m.done.Go(m.run)
	return m
}

func (m *meter) run() {
	t := time.NewTicker(ReportEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			m.tick()
		case <-m.quit:
			return
		}
	}
}

// stop returns when the last report has been made.
func (m *meter) stop() {
	close(m.quit)
	m.done.Wait()
}

func (m *meter) tick() {
	m.saying.Lock()
	defer m.saying.Unlock()
	m.mu.Lock()
	p := Progress{Percent: percent(m.have, m.size), BytesPerSecond: m.window.rate(time.Now())}
	waiting := m.waiting // what there is to say was said when the wait began
	m.mu.Unlock()
	if !waiting {
		m.report(p)
	}
}

// first is the report before the first attempt.
func (m *meter) first() {
	m.saying.Lock()
	defer m.saying.Unlock()
	m.report(Progress{Percent: m.percent()})
}

// wait reports that nothing is to be expected until then.
func (m *meter) wait(why string, until time.Time) {
	m.saying.Lock()
	defer m.saying.Unlock()
	m.mu.Lock()
	m.waiting = true
	m.mu.Unlock()
	m.report(Progress{Percent: m.percent(), Retry: why, RetryAt: until})
}

// attempt says that a source is being asked.
func (m *meter) attempt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = false
	m.window.reset(time.Now())
}

// came counts bytes that have arrived, useful or not.
func (m *meter) came(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.window.total += int64(n)
}

// stands says how much of the file is here.
func (m *meter) stands(have, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.have, m.size = have, size
}

func (m *meter) percent() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return percent(m.have, m.size)
}
