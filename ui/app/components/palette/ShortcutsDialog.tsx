import { Modal } from "@mantine/core";
import { useReturnFocus } from "~/hooks/useReturnFocus";
import { SETUP, WORK } from "~/pages/nav";
import { shortcutGroups } from "~/util/palette/shortcuts";
import { isMac } from "./Commands";
import classes from "./Palette.module.css";

export function ShortcutsDialog({ onClose }: { onClose: () => void }) {
  useReturnFocus();
  return (
    <Modal
      opened
      onClose={onClose}
      size={640}
      centered
      title={<strong>Keyboard shortcuts</strong>}
      transitionProps={{ duration: 0 }}
      closeButtonProps={{ "aria-label": "Close" }}
    >
      <div className={classes.groups}>
        {shortcutGroups([...WORK, ...SETUP], isMac()).map((group) => (
          <section key={group.title}>
            <h3 className={classes.groupTitle}>{group.title}</h3>
            <dl className={classes.keys}>
              {group.items.map(({ keys, does }) => (
                <div key={does} className={classes.keyRow}>
                  <dt>{does}</dt>
                  <dd>
                    {keys.map((k, i) => (
                      <span key={i}>
                        {i > 0 ? <span className={classes.then}> then </span> : null}
                        <kbd>{k}</kbd>
                      </span>
                    ))}
                  </dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Modal>
  );
}
