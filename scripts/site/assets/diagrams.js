// Sequence diagrams as wide as the page allows, so that their type is not made smaller, and arrowheads in the colour of
// their lines: the theme knows the names that Mermaid 10 gave them.
(() => {
  const theme = `
    marker path, marker circle, marker line, [id$="arrowhead"] path, [id$="crosshead"] path, [id$="filled-head"] path {
      fill: var(--md-mermaid-sequence-message-line-color) !important;
      stroke: var(--md-mermaid-sequence-message-line-color) !important;
    }
    .messageText {
      paint-order: stroke;
      stroke: var(--md-default-bg-color) !important;
      stroke-width: 5px !important;
    }`;
  const { initialize, render } = window.mermaid;
  window.mermaid.initialize = options => initialize({ ...options, themeCSS: `${options.themeCSS}${theme}` });
  window.mermaid.render = (id, text, ...rest) => {
    const actors = new Set(text.match(/^ *participant +\w+/gm)).size;
    if (!actors) return render(id, text, ...rest);
    const room = document.querySelector("article").clientWidth;
    const narrow = room < 500;
    const between = narrow ? 6 : 40;
    const width = Math.min(narrow ? 200 : 300, Math.floor((room - 24 - (actors - 1) * between) / actors));
    const size = narrow && actors > 3 ? 13 : narrow ? 14 : 15;
    const settings = {
      wrap: true, wrapPadding: narrow ? 2 : 12, width, actorMargin: between, diagramMarginX: 4, diagramMarginY: 12,
      noteMargin: 6, messageMargin: narrow ? 22 : 30, boxMargin: 6, mirrorActors: false,
      actorFontSize: size, messageFontSize: size, noteFontSize: size,
    };
    return render(id, `%%{init: ${JSON.stringify({ sequence: settings })}}%%\n${text}`, ...rest);
  };
})();
