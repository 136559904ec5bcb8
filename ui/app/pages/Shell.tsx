/** The frame of every page: rail, top bar, content. */
import { Drawer } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { Outlet, useLocation } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { NowProvider } from "~/components/base/Now";
import { Rail } from "~/components/frame/Rail";
import { TopBar } from "~/components/frame/TopBar";
import { Commands } from "~/components/palette/Commands";
import { CrumbsProvider } from "~/hooks/useCrumbs";
import { EventsProvider } from "~/hooks/useEvents";
import classes from "./Shell.module.css";

export function Shell() {
  const [narrow, setNarrow] = useLocalStorage({ key: "muster-rail-narrow", defaultValue: false, getInitialValueInEffect: false });
  const [menu, setMenu] = useState(false);
  const path = useLocation({ select: (l) => l.pathname });
  useFocusOnNewPage(path);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another page closes the menu
  useEffect(() => setMenu(false), [path]);
  return (
    <EventsProvider>
      <NowProvider>
        <CrumbsProvider>
          <a className={classes.skip} href="#main">
            Skip to the content
          </a>
          <div className={classes.shell} data-narrow={narrow || undefined}>
            <div className={classes.rail}>
              <Rail narrow={narrow} onNarrow={setNarrow} />
            </div>
            <Drawer
              opened={menu}
              onClose={() => setMenu(false)}
              size={208}
              padding={0}
              withCloseButton={false}
              title={<span className="sr-only">Pages</span>}
              classNames={{ header: classes.drawerHead, body: classes.drawer }}
            >
              <Rail narrow={false} />
            </Drawer>
            <div className={classes.side}>
              <TopBar onMenu={() => setMenu(true)}>
                <Commands />
              </TopBar>
              <main id="main" className={classes.main} tabIndex={-1}>
                <Outlet />
              </main>
            </div>
          </div>
        </CrumbsProvider>
      </NowProvider>
    </EventsProvider>
  );
}

/** A new page starts at its top for the keyboard and the screen reader too. */
function useFocusOnNewPage(path: string): void {
  const shown = useRef(path);
  useEffect(() => {
    if (shown.current === path) return;
    shown.current = path;
    document.getElementById("main")?.focus({ preventScroll: true });
  }, [path]);
}
